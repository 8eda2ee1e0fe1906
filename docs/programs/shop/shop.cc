/* A shop's server with four faults, for the page ../shop.md: one line in, one line out, a thread a connection. */
/* SPDX-License-Identifier: MIT */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

std::mutex mutex;

/* ---- orders ---- */

struct Order {
    char item[40];
};

std::map<long, Order *> orders;

std::string order(const std::string &item) {
    long number = static_cast<long>(orders.size()) + 1;
    orders[number] = new Order{};
    strncpy(orders[number]->item, item.c_str(), sizeof Order::item - 1);
    return "order " + std::to_string(number);
}

std::string cancel(long number) {
    auto found = orders.find(number);
    if (found == orders.end())
        return "no such order";
    delete found->second; /* the table keeps the pointer */
    return "cancelled";
}

/* ---- quotes ---- */

struct Quote {
    long cents;
    char text[1000];
};

Quote *make_quote(const std::string &item) {
    auto *quote = new Quote;
    quote->cents = static_cast<long>(std::hash<std::string>{}(item) % 10000);
    snprintf(quote->text, sizeof quote->text, "%s costs %ld cents", item.c_str(), quote->cents);
    return quote;
}

std::string price(const std::string &item) {
    Quote *quote = make_quote(item);
    if (quote->cents % 2 == 0)
        return "not for sale"; /* the quote stays */
    std::string text = quote->text;
    delete quote;
    return text;
}

/* ---- the cache of results ---- */

struct Result {
    std::string words;
    char page[200];
    bool is_bestseller;
};

std::vector<std::unique_ptr<Result>> results;

Result *remember(const std::string &words) {
    results.push_back(std::make_unique<Result>());
    Result *result = results.back().get();
    result->words = words;
    result->is_bestseller = results.size() % 20 == 0;
    snprintf(result->page, sizeof result->page, "all about %s", words.c_str());
    return result;
}

/* Yesterday's results, so that the first customers need not wait. */
std::string warm(long count) {
    for (long i = 0; i < count; i++)
        remember("article " + std::to_string(i));
    return std::to_string(results.size()) + " results";
}

/* Bestsellers stay, where they happen to lie. */
std::string clean() {
    std::vector<std::unique_ptr<Result>> kept;
    for (auto &result : results)
        if (result->is_bestseller)
            kept.push_back(std::move(result));
    results = std::move(kept);
    return std::to_string(results.size()) + " kept";
}

/* ---- coupons ---- */

enum { COUPON_BYTES = 32 };

std::string redeem(const std::string &code) {
    char *copy = static_cast<char *>(malloc(COUPON_BYTES));
    strcpy(copy, code.c_str()); /* 32 characters are too many */
    std::string answer = strlen(copy) % 2 == 0 ? "valid" : "invalid";
    free(copy);
    return answer;
}

/* ---- the server ---- */

std::string answer(const std::string &line) {
    std::lock_guard<std::mutex> guard(mutex);
    size_t space = line.find(' ');
    std::string command = line.substr(0, space), rest = space == std::string::npos ? "" : line.substr(space + 1);
    if (command == "ORDER")
        return order(rest);
    if (command == "CANCEL")
        return cancel(atol(rest.c_str()));
    if (command == "PRICE")
        return price(rest);
    if (command == "SEARCH")
        return remember(rest)->page;
    if (command == "WARM")
        return warm(atol(rest.c_str()));
    if (command == "CLEAN")
        return clean();
    if (command == "COUPON")
        return redeem(rest);
    return "unknown command";
}

void serve(int connection) {
    FILE *in = fdopen(connection, "r");
    char *line = nullptr;
    size_t room = 0;
    while (getline(&line, &room, in) > 0) {
        line[strcspn(line, "\n")] = '\0';
        std::string text = answer(line) + "\n";
        if (send(connection, text.data(), text.size(), MSG_NOSIGNAL) < 0)
            break;
    }
    free(line);
    fclose(in);
}

} // namespace

int main(int argc, char **argv) {
    std::string path = argc > 1 ? argv[1] : "shop.sock";
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    snprintf(address.sun_path, sizeof address.sun_path, "%s.new", path.c_str());
    unlink(address.sun_path);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    /* Where customers find it, it listens already. */
    if (bind(listener, reinterpret_cast<sockaddr *>(&address), sizeof address) != 0 || listen(listener, 16) != 0 ||
        rename(address.sun_path, path.c_str()) != 0) {
        perror(address.sun_path);
        return 1;
    }
    for (int connection; (connection = accept(listener, nullptr, nullptr)) >= 0;)
        std::thread(serve, connection).detach();
    return 1;
}
