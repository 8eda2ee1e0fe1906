/* The workload of `./hak run`: a small shop on in-memory SQLite databases, one for each thread.
 *
 * Each thread (1) fills customers and orders, with an index; (2) answers requests: it looks up a customer's orders,
 * builds objects from the rows, caches the latest answers, and sometimes places or changes an order; (3) makes a report
 * with sorting and grouping; (4) deletes two thirds of the orders. The threads do (3) and (4) one after the other: that
 * memory is the program's peak, and so does not depend on how they coincide. The program ends with its data in memory,
 * like a server that is stopped. It prints one line, the same in every run: a checksum of all answers. It knows no
 * allocator: everything goes through malloc. */
/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <sqlite3.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 2, CUSTOMERS = 5000, ORDERS = 100000, REQUESTS = 45000, CACHED_ANSWERS = 4096 };

struct order {
    struct order *next;
    int64_t id, cents;
    char *item, *note;
};

struct shop {
    sqlite3 *db;
    uint64_t random, checksum;
    struct order *cache[CACHED_ANSWERS];
};

static pthread_mutex_t night = PTHREAD_MUTEX_INITIALIZER;

static void fail(struct shop *shop, const char *what) {
    fprintf(stderr, "database: %s: %s\n", what, sqlite3_errmsg(shop->db));
    exit(1);
}

static uint32_t random_below(struct shop *shop, uint32_t limit) {
    shop->random = shop->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(((shop->random >> 32) * limit) >> 32);
}

static void add(struct shop *shop, const void *bytes, size_t count) {
    const unsigned char *at = bytes;
    for (size_t i = 0; i < count; i++) {
        shop->checksum = (shop->checksum ^ at[i]) * 1099511628211u;
    }
}

static void run(struct shop *shop, const char *sql) {
    if (sqlite3_exec(shop->db, sql, NULL, NULL, NULL) != SQLITE_OK) {
        fail(shop, sql);
    }
}

static sqlite3_stmt *prepare(struct shop *shop, const char *sql) {
    sqlite3_stmt *statement;
    if (sqlite3_prepare_v2(shop->db, sql, -1, &statement, NULL) != SQLITE_OK) {
        fail(shop, sql);
    }
    return statement;
}

/* Runs a statement that returns no rows. */
static void step(struct shop *shop, sqlite3_stmt *statement) {
    if (sqlite3_step(statement) != SQLITE_DONE) {
        fail(shop, "step");
    }
    sqlite3_reset(statement);
}

/* Returns a text of 10 to 10 + `spread` bytes. */
static char *random_text(struct shop *shop, uint32_t spread) {
    uint32_t length = 10 + random_below(shop, spread);
    char *text = malloc(length + 1);
    if (!text) {
        fail(shop, "out of memory");
    }
    for (uint32_t i = 0; i < length; i++) {
        text[i] = (char)('a' + random_below(shop, 26));
    }
    text[length] = 0;
    return text;
}

static void place_order(struct shop *shop, sqlite3_stmt *insert) {
    sqlite3_bind_int64(insert, 1, random_below(shop, CUSTOMERS));
    sqlite3_bind_int64(insert, 2, random_below(shop, 100000));
    sqlite3_bind_text(insert, 3, random_text(shop, 30), -1, free);
    sqlite3_bind_text(insert, 4, random_text(shop, 400), -1, free);
    step(shop, insert);
}

static void fill(struct shop *shop, sqlite3_stmt *insert_order) {
    sqlite3_stmt *insert = prepare(shop, "insert into customers(id, name) values (?, ?)");
    run(shop, "begin");
    for (int i = 0; i < CUSTOMERS; i++) {
        sqlite3_bind_int64(insert, 1, i);
        sqlite3_bind_text(insert, 2, random_text(shop, 40), -1, free);
        step(shop, insert);
    }
    for (int i = 0; i < ORDERS; i++) {
        place_order(shop, insert_order);
    }
    run(shop, "commit");
    sqlite3_finalize(insert);
    run(shop, "create index by_customer on orders(customer)");
}

static void forget(struct order *order) {
    while (order) {
        struct order *next = order->next;
        free(order->item);
        free(order->note);
        free(order);
        order = next;
    }
}

static char *copy_text(struct shop *shop, sqlite3_stmt *statement, int column) {
    char *text = strdup((const char *)sqlite3_column_text(statement, column));
    if (!text) {
        fail(shop, "out of memory");
    }
    return text;
}

/* Returns the rows of `select` as a list of objects. */
static struct order *fetch(struct shop *shop, sqlite3_stmt *select) {
    struct order *orders = NULL;
    while (sqlite3_step(select) == SQLITE_ROW) {
        struct order *order = malloc(sizeof *order);
        if (!order) {
            fail(shop, "out of memory");
        }
        *order = (struct order){.next = orders,
                                .id = sqlite3_column_int64(select, 0),
                                .cents = sqlite3_column_int64(select, 1),
                                .item = copy_text(shop, select, 2),
                                .note = copy_text(shop, select, 3)};
        add(shop, &order->id, sizeof order->id);
        add(shop, order->item, strlen(order->item));
        orders = order;
    }
    sqlite3_reset(select);
    return orders;
}

static void serve(struct shop *shop, sqlite3_stmt *insert_order) {
    sqlite3_stmt *update = prepare(shop, "update orders set note = ? where id = ?");
    for (int i = 0; i < REQUESTS; i++) {
        /* Many programs prepare their statements again for every request. */
        sqlite3_stmt *select = prepare(shop, "select o.id, o.cents, o.item, c.name || ': ' || o.note from orders o "
                                             "join customers c on c.id = o.customer where o.customer = ? "
                                             "order by o.cents limit 20");
        sqlite3_bind_int64(select, 1, random_below(shop, CUSTOMERS));
        struct order **cached = &shop->cache[random_below(shop, CACHED_ANSWERS)];
        forget(*cached);
        *cached = fetch(shop, select);
        sqlite3_finalize(select);
        if (i % 4 == 0) {
            place_order(shop, insert_order);
            sqlite3_bind_text(update, 1, random_text(shop, 600), -1, free);
            sqlite3_bind_int64(update, 2, 1 + random_below(shop, ORDERS));
            step(shop, update);
        }
    }
    sqlite3_finalize(update);
}

static void report(struct shop *shop) {
    sqlite3_stmt *select = prepare(shop, "select substr(item, 1, 2) || substr(note, 1, 1) as kind, count(*), "
                                         "group_concat(substr(note, 1, 40)) from orders group by kind order by kind");
    while (sqlite3_step(select) == SQLITE_ROW) {
        add(shop, sqlite3_column_text(select, 2), (size_t)sqlite3_column_bytes(select, 2));
    }
    sqlite3_finalize(select);
}

static void *open_shop(void *argument) {
    struct shop *shop = argument;
    if (sqlite3_open(":memory:", &shop->db) != SQLITE_OK) {
        fail(shop, "open");
    }
    run(shop, "create table customers(id integer primary key, name text);"
              "create table orders(id integer primary key, customer int, cents int, item text, note text)");
    sqlite3_stmt *insert_order = prepare(shop, "insert into orders(customer, cents, item, note) values (?, ?, ?, ?)");
    fill(shop, insert_order);
    serve(shop, insert_order);
    sqlite3_finalize(insert_order);
    pthread_mutex_lock(&night);
    report(shop);
    run(shop, "delete from orders where id % 3");
    run(shop, "vacuum");
    pthread_mutex_unlock(&night);
    return NULL;
}

int main(void) {
    static struct shop shops[THREADS];
    pthread_t threads[THREADS];
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0); /* as SQLite's manual recommends for several threads */
    for (int i = 0; i < THREADS; i++) {
        shops[i].random = (uint64_t)i + 1;
        if (pthread_create(&threads[i], NULL, open_shop, &shops[i])) {
            perror("database: pthread_create");
            return 1;
        }
    }
    uint64_t checksum = 0;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        checksum ^= shops[i].checksum;
    }
    printf("%016llx\n", (unsigned long long)checksum);
    return 0;
}
