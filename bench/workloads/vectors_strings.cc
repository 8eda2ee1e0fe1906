/* vectors_strings [COUNT] [ROUNDS] [SEED]: C++ vectors and strings that grow without a reservation.
 *
 * COUNT containers of each kind, anew ROUNDS times: strings by appending 1-16 characters, vectors of numbers by
 * push_back, vectors of strings by push_back (each growth moves them, and each string above 15 characters is a block).
 * How far each one grows is drawn as random_size does, up to 64 KiB. They grow in random order, beside one another. An
 * operation is one append. */
/* SPDX-License-Identifier: MIT */
#include "workload.h"

#include <string>
#include <vector>

namespace {

enum { COUNT, ROUNDS, SEED };

argument args[] = {{"COUNT", 300, 1, 1u << 20}, {"ROUNDS", 1200, 1, 0}, {"SEED", 42, 0, 0}};

struct Group {
    std::string text;
    std::vector<uint64_t> numbers;
    std::vector<std::string> strings;
    size_t goal;
};

void grow(Group &group, uint64_t *random) {
    group.text.append(1 + random_below(random, 16), 'x');
    group.numbers.push_back(group.numbers.size());
    if (group.numbers.size() % 8 == 0)
        group.strings.emplace_back(8 + random_below(random, 40), 'y');
}

void check(const Group &group) {
    bool good = group.text.front() == 'x' && group.text.back() == 'x' && group.numbers.front() == 0 &&
                group.numbers.back() == group.numbers.size() - 1;
    for (const std::string &string : group.strings)
        good = good && string.front() == 'y' && string.back() == 'y';
    if (!good)
        fail(3, "a container does not hold what was written into it");
}

uint64_t round_run(uint64_t *random) {
    std::vector<Group> groups(args[COUNT].value);
    uint64_t operations = 0;
    for (Group &group : groups)
        group.goal = random_size(random, 13) / 8;
    for (size_t left = groups.size(); left > 0;) {
        uint32_t at = random_below(random, static_cast<uint32_t>(left));
        for (int i = 0; i < 8; i++, operations++)
            grow(groups[at], random);
        if (groups[at].numbers.size() >= groups[at].goal) {
            check(groups[at]);
            std::swap(groups[at], groups[--left]); /* complete; freed with the others at the end */
        }
    }
    return operations;
}

} // namespace

int main(int argc, char **argv) {
    ARGUMENTS_READ(argc, argv, args);
    uint64_t random = random_seed(args[SEED].value), operations = 0;
    double start = now_seconds();
    for (uint64_t round = 0; round < args[ROUNDS].value; round++)
        operations += round_run(&random);
    report_speed(operations, now_seconds() - start);
}
