/* A service in miniature: requests in four threads that build and keep little, a cache that is dropped, and rest. */
// SPDX-License-Identifier: MIT
#include <hakmem.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <thread>
#include <vector>

static std::vector<std::string> request(size_t number) {
    std::vector<std::string> rows;
    for (size_t row = 0; row < 20 + number % 300; row++)
        rows.push_back("user " + std::to_string(row) + std::string(number * row % 600, 'x'));
    return rows;
}

static void hour(size_t requests, size_t *bytes) {
    std::map<size_t, std::vector<std::string>> cache;
    for (size_t number = 0; number < requests; number++) {
        auto &kept = cache[number % 200] = request(number);
        for (const auto &row : kept)
            *bytes += row.size();
    }
}

int main() {
    size_t bytes[4] = {0};
    std::vector<std::thread> threads;
    for (size_t &sum : bytes)
        threads.emplace_back([&sum] {
            for (size_t requests : {200, 1200, 100})
                hour(requests, &sum);
        });
    for (auto &thread : threads)
        thread.join();
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    printf("%zu bytes, HAKMEM %s\n", bytes[0] + bytes[1] + bytes[2] + bytes[3], hak_version());
}
