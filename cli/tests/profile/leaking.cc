// A service that leaks: leaking BYTES_PER_SECOND. It prints "ready" and runs until its standard input ends. Beside the
// leak it has what looks like one: a cache of fixed size, blocks that live for 50 ms, and one large block now and then.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <poll.h>

#define NEVER __attribute__((noinline))
using Clock = std::chrono::steady_clock;

static char *newest; // which leads to the one before
static std::deque<char *> cached;
static std::deque<std::pair<Clock::time_point, char *>> brief;

static char *touched(void *block, size_t bytes) { return static_cast<char *>(memset(block, 1, bytes)); }

NEVER void request() {
    char *block = touched(malloc(700), 700); // LEAK
    memcpy(block, &newest, sizeof newest);
    newest = block;
}

NEVER void lookup() {
    cached.push_back(touched(malloc(900), 900)); // CACHE
    if (cached.size() > 4000) {
        free(cached.front());
        cached.pop_front();
    }
}

NEVER void answer(Clock::time_point now) {
    brief.emplace_back(now + std::chrono::milliseconds(50), touched(malloc(2000), 2000)); // BRIEF
    while (brief.front().first < now) {
        free(brief.front().second);
        brief.pop_front();
    }
}

NEVER void buffer() {
    static char *large;
    free(large);
    large = touched(malloc(3 << 20), 3 << 20); // BUFFER
}

int main(int count, char **arguments) {
    double rate = count > 1 ? atof(arguments[1]) : 1e6;
    for (int i = 0; i < 5000; i++)
        lookup();
    puts("ready");
    fflush(stdout);
    auto begun = Clock::now();
    double leaked = 0;
    struct pollfd input = {0, POLLIN, 0};
    for (int round = 0; poll(&input, 1, 2) == 0; round++) {
        auto now = Clock::now();
        while (leaked < rate * std::chrono::duration<double>(now - begun).count()) {
            request();
            leaked += 700;
        }
        for (int i = 0; i < 20; i++)
            lookup(), answer(now);
        if (round % 500 == 250)
            buffer();
    }
    return 0;
}
