/* string_map [KEYS] [OPS] [SEED]: C++ maps of strings: an unordered_map, a map, and a list in order of use.
 *
 * A cache as C++ programs write it: an unordered_map from a key (a string of 10-50 characters) to a value (a string of
 * 16 B-4 KiB) and its place in a list of the KEYS / 2 most recently used ones; the least recent one is erased. A map
 * counts how often each key occurred. Values contain a letter of their key. An operation is one look-up and what
 * follows from it. */
/* SPDX-License-Identifier: MIT */
#include "workload.h"

#include <list>
#include <map>
#include <string>
#include <unordered_map>

namespace {

enum { KEYS, OPS, SEED };

argument args[] = {{"KEYS", 20000, 2, 1u << 28}, {"OPS", 400000, 1, 0}, {"SEED", 42, 0, 0}};

struct Entry {
    std::string value;
    std::list<std::string>::iterator used;
};

std::string key_text(uint32_t key) { return "key:" + std::to_string(key) + std::string(key % 40, '.'); }

char letter(uint32_t key) { return static_cast<char>('a' + key % 26); }

class Cache {
  public:
    explicit Cache(size_t most) : most_(most) {}

    void look_up(uint32_t key, uint64_t *random) {
        std::string text = key_text(key);
        counts_[text]++;
        auto found = entries_.find(text);
        if (found == entries_.end()) {
            used_.push_front(text);
            entries_.emplace(text, Entry{std::string(random_size(random, 8), letter(key)), used_.begin()});
            if (entries_.size() > most_) {
                entries_.erase(used_.back());
                used_.pop_back();
            }
            return;
        }
        const std::string &value = found->second.value;
        if (value.front() != letter(key) || value.back() != letter(key))
            fail(3, "a value does not hold what was written into it");
        used_.splice(used_.begin(), used_, found->second.used);
        if (random_below(random, 4) == 0)
            found->second.value.assign(random_size(random, 8), letter(key));
    }

    uint64_t counted() const {
        uint64_t sum = 0;
        for (const auto &count : counts_)
            sum += count.second;
        return sum;
    }

  private:
    size_t most_;
    std::unordered_map<std::string, Entry> entries_;
    std::map<std::string, uint64_t> counts_;
    std::list<std::string> used_;
};

} // namespace

int main(int argc, char **argv) {
    ARGUMENTS_READ(argc, argv, args);
    uint32_t keys = static_cast<uint32_t>(args[KEYS].value);
    uint64_t random = random_seed(args[SEED].value);
    double start = now_seconds();
    {
        Cache cache(keys / 2);
        for (uint64_t op = 0; op < args[OPS].value; op++) {
            uint32_t one = random_below(&random, keys), two = random_below(&random, keys);
            cache.look_up(one < two ? one : two, &random);
        }
        if (cache.counted() != args[OPS].value)
            fail(3, "a count does not hold what was written into it");
    }
    report_speed(args[OPS].value, now_seconds() - start);
}
