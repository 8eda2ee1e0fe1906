// check FOLDER: reads the histories that record.c wrote there, and prints what no allocator may do. If it misses a
// fault, what docs/reliability.md says about real programs is worth nothing: history_test.cc plants one of each kind.
//
//  1. A block is live from the moment after the call that returned it to the moment before the one that frees it. No
//     two live blocks have a byte in common, over all that malloc_usable_size grants.
//  2. So a block that is handed out before its free begins is found as one that overlaps itself.
//  3. A block has the alignment that was asked for, or 16 (8 if it is shorter), and as many usable bytes as requested.
//  4. What is freed was live.
//  5. A child goes on from its parent's live blocks. What other threads of the parent did while it forked, the child
//     may have seen or not, so these blocks need neither be live there nor be free.
//
// Moments are numbers, so nothing is sorted: n events take O(n log n) for the map of live blocks.
// SPDX-License-Identifier: MIT
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "history.h"

namespace {

constexpr unsigned most_lines = 10;

struct File {
    std::string parent;
    uint64_t begin = 0;                    // the number of its first moment
    std::vector<const history_event *> at; // by moment, from `begin` on; nullptr where nothing is known
    std::vector<const history_event *> forks;
    std::vector<std::string> children; // by their first moments
};

struct Block {
    uint64_t end;
    uint64_t since;
    bool is_certain; // in a child: neither allocated nor freed while its parent forked
};
using Live = std::map<uint64_t, Block>; // by addresses

std::map<std::string, File> files;
uint64_t events, threads, faults;

[[noreturn]] void die(const std::string &what) {
    std::fprintf(stderr, "check: %s\n", what.c_str());
    std::exit(2);
}

template <typename... Values> void fault(const std::string &name, const char *format, Values... values) {
    if (++faults <= most_lines) {
        std::printf("%s: ", name.c_str());
        std::printf(format, values...);
        std::printf("\n");
    }
}

// ---- reading ----

void put(File &file, uint64_t moment, const history_event *event) {
    if (moment < file.begin)
        die("moment " + std::to_string(moment) + " of a child that begins at " + std::to_string(file.begin));
    if (file.at.size() <= moment - file.begin)
        file.at.resize(std::max(moment - file.begin + 1, file.at.size() * 2));
    file.at[moment - file.begin] = event;
}

void read_chunk(File &file, const history_event *event, std::set<uint64_t> &seen) {
    seen.insert(event->begin); // HISTORY_THREAD
    for (const history_event *end = event + HISTORY_CHUNK_EVENTS; ++event < end && event->kind != HISTORY_NONE;) {
        events++;
        if (event->kind == HISTORY_FORK)
            file.forks.push_back(event);
        if (event->begin != 0)
            put(file, event->begin, event);
        if (event->end != 0)
            put(file, event->end, event);
    }
}

void read_file(const std::string &folder, const std::string &name) {
    int fd = open((folder + "/" + name).c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status = {};
    if (fd < 0 || fstat(fd, &status) != 0 || static_cast<size_t>(status.st_size) < sizeof(history_process))
        die(name + ": cannot be read");
    size_t bytes = static_cast<size_t>(status.st_size);
    void *mapped = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0); // stays
    if (mapped == MAP_FAILED)
        die(name + ": cannot be mapped");
    close(fd);
    auto *opening = static_cast<const history_process *>(mapped);
    if (opening->kind >> 56 != HISTORY_PROCESS)
        die(name + ": is no history");
    File &file = files[name];
    file.parent = opening->parent;
    file.begin = file.parent.empty() ? 0 : opening->begin;
    std::set<uint64_t> seen;
    for (size_t at = HISTORY_OPENING_BYTES; at + HISTORY_CHUNK_BYTES <= bytes; at += HISTORY_CHUNK_BYTES)
        read_chunk(file, reinterpret_cast<const history_event *>(static_cast<const char *>(mapped) + at), seen);
    threads += seen.size();
}

// ---- checking ----

// The moment at which somebody begins to free the block that lies there, from that moment on; 0 if nobody does.
uint64_t next_free(const File &file, uint64_t moment, uint64_t block) {
    for (; moment - file.begin < file.at.size(); moment++) {
        const history_event *event = file.at[moment - file.begin];
        if (event != nullptr && event->old == block && event->begin == moment)
            return moment;
    }
    return 0;
}

// Takes away the blocks that overlap the new one: each is a fault, if it is live for certain.
void take_overlapped(const std::string &name, const File &file, Live &live, const history_event &event, uint64_t end) {
    auto found = live.lower_bound(end);
    while (found != live.begin()) {
        --found;
        if (found->second.end <= event.new_block)
            break;
        if (found->second.is_certain) {
            uint64_t freed = next_free(file, event.end, found->first);
            if (found->first == event.new_block && freed != 0)
                fault(name, "early: block %" PRIx64 " is handed out at %" PRIu64 ", and its free begins at %" PRIu64,
                      event.new_block, event.end, freed);
            else
                fault(name,
                      "overlap: block %" PRIx64 " of %" PRIu64 " bytes is handed out at %" PRIu64 ", and %" PRIx64
                      " of %" PRIu64 " bytes is live since %" PRIu64,
                      event.new_block, event.usable, event.end, found->first, found->second.end - found->first,
                      found->second.since);
        }
        found = live.erase(found);
    }
}

void handed_out(const std::string &name, const File &file, Live &live, const history_event &event) {
    if (event.usable < event.size)
        fault(name, "too small: block %" PRIx64 ", requested with %" PRIu64 " bytes, has %" PRIu64, event.new_block,
              static_cast<uint64_t>(event.size), event.usable);
    if (event.new_block & ((uint64_t{1} << event.log2_alignment) - 1))
        fault(name, "bad alignment: block %" PRIx64 " of %" PRIu64 " bytes is no multiple of %" PRIu64, event.new_block,
              static_cast<uint64_t>(event.size), uint64_t{1} << event.log2_alignment);
    uint64_t end = event.new_block + std::max<uint64_t>(event.usable, 1);
    take_overlapped(name, file, live, event, end);
    live[event.new_block] = {end, event.end, true};
}

void freed(const std::string &name, Live &live, const history_event &event) {
    bool has_failed = event.kind == HISTORY_REALLOC && event.end != 0 && event.new_block == 0 && event.size != 0;
    if (!has_failed && live.erase(event.old) == 0)
        fault(name, "not live: block %" PRIx64 " is freed at %" PRIu64, event.old, event.begin);
}

// What a child of that moment cannot be sure of.
void blur(const File &file, uint64_t moment, Live &live) {
    for (const history_event *fork : file.forks) {
        if (fork->begin >= moment || moment > fork->end)
            continue;
        for (uint64_t at = fork->begin + 1; at < fork->end && at - file.begin < file.at.size(); at++) {
            const history_event *event = file.at[at - file.begin];
            for (uint64_t block : {event ? event->old : 0, event ? event->new_block : 0})
                if (block != 0)
                    live.insert({block, {block + 1, at, false}}).first->second.is_certain = false;
        }
    }
}

void check(const std::string &name, Live live) {
    File &file = files[name];
    size_t child = 0;
    for (size_t i = 0; i <= file.at.size(); i++) {
        for (; child < file.children.size(); child++) {
            uint64_t begin = files[file.children[child]].begin;
            if (begin > file.begin + i && i < file.at.size())
                break;
            Live known = live;
            blur(file, begin, known);
            check(file.children[child], std::move(known));
        }
        const history_event *event = i < file.at.size() ? file.at[i] : nullptr;
        if (event == nullptr || event->kind == HISTORY_FORK)
            continue;
        if (event->begin == file.begin + i)
            freed(name, live, *event);
        else if (event->new_block != 0)
            handed_out(name, file, live, *event);
    }
    file.at = {};
}

} // namespace

int main(int count, char **words) {
    if (count != 2)
        die("usage: check FOLDER");
    DIR *folder = opendir(words[1]);
    if (folder == nullptr)
        die("there is no such folder");
    while (const dirent *entry = readdir(folder))
        if (entry->d_name[0] != '.')
            read_file(words[1], entry->d_name);
    closedir(folder);
    std::vector<std::string> first;
    for (auto &[name, file] : files)
        (files.count(file.parent) ? files[file.parent].children : first).push_back(name);
    for (auto &[name, file] : files)
        std::sort(file.children.begin(), file.children.end(),
                  [](auto &a, auto &b) { return files[a].begin < files[b].begin; });
    for (const std::string &name : first)
        check(name, {});
    std::printf("%" PRIu64 " events, %" PRIu64 " threads, %zu processes, %" PRIu64 " faults\n", events, threads,
                files.size(), faults);
    return faults != 0;
}
