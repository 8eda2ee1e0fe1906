/* Shared by the tests: how often they repeat, random numbers, patterns that reveal a damaged block, this process's
 * memory as the kernel counts it, running this program again as a child, and misuses that run this way. Nothing here
 * reads a clock.
 *
 * HAK_TEST_LONGER=N in the environment repeats N times as often, for a soak. HAK_TEST_SHORTER=N repeats only a part,
 * for an emulator. A line `figure: NAME VALUE` is a result for the documentation: the sum over all runs or, for
 * NAME_most, the maximum. */
/* SPDX-License-Identifier: MIT */
#ifndef HAKMEM_TESTS_SUPPORT_H
#define HAKMEM_TESTS_SUPPORT_H

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ostream>
#include <string>
#include <vector>

/* By how much loops are shortened: 1, or more under a sanitizer (tests/CMakeLists.txt). */
#ifndef HAK_TEST_SHORTER
#define HAK_TEST_SHORTER 1
#endif
constexpr int kShorter = HAK_TEST_SHORTER;

inline bool in_secure_mode() {
    const char *mode = getenv("HAKMEM_SECURE");
    return mode != nullptr && strcmp(mode, "1") == 0;
}

inline int from_environment(const char *name) {
    const char *text = getenv(name);
    int value = text != nullptr ? atoi(text) : 1;
    return value > 1 ? value : 1;
}

/* Returns `usual`, adjusted to the environment and the sanitizer, at least 10. A soak multiplies `soaked` instead. */
inline int times(int usual, int soaked = 0) {
    int longer = from_environment("HAK_TEST_LONGER");
    int count =
        (longer > 1 && soaked > usual ? soaked : usual) / kShorter / from_environment("HAK_TEST_SHORTER") * longer;
    return count > 10 ? count : 10;
}

/* Prints a figure. Maxima are printed only in the default mode, and without a sanitizer's memory. */
inline void figure(const char *name, long value) {
    bool is_maximum = strstr(name, "_most") != nullptr || strstr(name, "_percent") != nullptr;
    if (!is_maximum || (kShorter == 1 && !in_secure_mode()))
        printf("figure: %s %ld\n", name, value > 0 ? value : 0);
}

constexpr size_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB, kTiB = 1024 * kGiB;

/* Sizes on both sides of every border between tiers, and a few inside each. */
constexpr size_t kTierSizes[] = {1,       8,          9,      16,   24,       48,        100,       256,
                                 257,     700,        1024,   1025, 4000,     16 * kKiB, 40 * kKiB, 64 * kKiB,
                                 65537,   200 * kKiB, 700000, kMiB, kMiB + 1, 2 * kMiB,  2097153,   5 * kMiB + 12345,
                                 9 * kMiB};

/* splitmix64: small, and good enough to drive a test. */
class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed) {}
    uint64_t next() {
        uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }
    size_t below(size_t bound) { return static_cast<size_t>(next() % bound); }
    /* Powers of two up to 2^most_log2 are equally likely; the size is uniform inside the chosen one. */
    size_t log_size(unsigned most_log2) {
        size_t top = size_t{1} << below(most_log2 + 1);
        return top / 2 + below(top / 2 + 1);
    }

  private:
    uint64_t state_;
};

/* ---- patterns ---- */

inline unsigned char pattern_byte(uint32_t tag, size_t at) {
    return static_cast<unsigned char>((at * 131 + tag * 29 + (at >> 8)) & 0xff);
}

/* Up to 2 KiB, every byte is written; in larger blocks, both ends and one byte in each 512. */
constexpr size_t kPatternWhole = 2048, kPatternStep = 512;

inline void pattern_write(void *block, size_t from, size_t size, uint32_t tag) {
    auto *p = static_cast<unsigned char *>(block);
    for (size_t i = from; i < size; i++) {
        if (i >= kPatternWhole && i % kPatternStep != 0 && i + 64 < size) {
            size_t jump = (i / kPatternStep + 1) * kPatternStep;
            i = (jump < size - 64 ? jump : size - 64) - 1;
            continue;
        }
        p[i] = pattern_byte(tag, i);
    }
}

/* Returns the offset of the first damaged byte among the first `size` bytes of a block whose pattern was written for
 * `written` bytes, or `size` if none is damaged. */
inline size_t pattern_check(const void *block, size_t size, size_t written, uint32_t tag) {
    auto *p = static_cast<const unsigned char *>(block);
    size_t end = size < written ? size : written;
    for (size_t i = 0; i < end; i++) {
        if (i >= kPatternWhole && i % kPatternStep != 0 && i + 64 < written) {
            size_t jump = (i / kPatternStep + 1) * kPatternStep;
            i = (jump < written - 64 ? jump : written - 64) - 1;
            continue;
        }
        if (p[i] != pattern_byte(tag, i))
            return i;
    }
    return size;
}

/* Returns the offset of the first byte that is not zero, or `size`. */
inline size_t first_dirty(const void *block, size_t size) {
    auto *p = static_cast<const unsigned char *>(block);
    if (size == 0 || (p[0] == 0 && memcmp(p, p + 1, size - 1) == 0))
        return size;
    size_t at = 0;
    while (p[at] == 0)
        at++;
    return at;
}

inline bool aligned_to(const void *block, size_t alignment) {
    return (reinterpret_cast<uintptr_t>(block) & (alignment - 1)) == 0;
}

/* The alignment that malloc(size) must give: 16, and 8 for blocks of at most 8 bytes. */
inline size_t natural_alignment(size_t size) { return size <= 8 ? 8 : 16; }

/* ---- memory as the kernel counts it ---- */

/* Does not allocate: a purger parks only while no thread uses its caches. */
inline long process_threads() {
    struct stat folder;
    return stat("/proc/self/task", &folder) == 0 ? static_cast<long>(folder.st_nlink) - 2 : 0;
}

/* Figures of this process's memory as the kernel tells. Does not allocate, because an allocation could give memory
 * back. */
class SmapsRollup {
  public:
    SmapsRollup() {
        int fd = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
        ssize_t n = fd >= 0 ? read(fd, text_, sizeof text_ - 1) : -1;
        if (fd >= 0)
            close(fd);
        text_[n > 0 ? n : 0] = '\0';
    }
    size_t kilobytes(const char *key) const {
        const char *line = strstr(text_, key);
        return line != nullptr ? strtoul(line + strlen(key), nullptr, 10) : 0;
    }

  private:
    char text_[4096];
};

/* What is resident, less what the system can take at once. */
inline size_t process_rss_bytes() {
    SmapsRollup own;
    return (own.kilobytes("\nRss:") - own.kilobytes("\nLazyFree:")) * 1024;
}

/* This process's share of its memory: a page that several addresses share counts once. Without pages of the file
 * system, whose share changes as other programs start and end. */
inline size_t process_pss_bytes() {
    SmapsRollup own;
    return (own.kilobytes("\nPss:") - own.kilobytes("\nPss_File:") - own.kilobytes("\nLazyFree:")) * 1024;
}

/* Other threads' writes cannot be held off where the kernel lacks this, or a container forbids it. */
inline bool can_hold_writes() {
    long fd = syscall(SYS_userfaultfd, O_CLOEXEC | 1);
    if (fd >= 0)
        close(static_cast<int>(fd));
    return fd >= 0;
}

/* Sums up Rss of the mappings inside [begin, end) in /proc/self/smaps. */
inline size_t range_rss_bytes(uintptr_t begin, uintptr_t end) {
    FILE *file = fopen("/proc/self/smaps", "re");
    if (file == nullptr)
        return 0;
    char line[512];
    bool inside = false;
    size_t sum = 0;
    while (fgets(line, sizeof line, file) != nullptr) {
        unsigned long from = 0, to = 0, kib = 0;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            inside = from >= begin && to <= end;
        if (inside && sscanf(line, "Rss: %lu kB", &kib) == 1)
            sum += kib * kKiB;
    }
    fclose(file);
    return sum;
}

/* ---- memory cgroups ---- */

inline bool write_file(const std::string &path, const std::string &text) {
    FILE *file = fopen(path.c_str(), "we");
    bool done = file != nullptr && fputs(text.c_str(), file) >= 0;
    if (file != nullptr)
        done = fclose(file) == 0 && done;
    return done;
}

/* A memory cgroup with a limit, where one can be made. It disappears with this object, once its processes have ended.
 * Only one at a time. */
class MemoryCgroup {
  public:
    explicit MemoryCgroup(size_t limit) {
        for (std::string root : {"/sys/fs/cgroup/memory", "/sys/fs/cgroup"}) {
            path() = root + "/hakmem-test-" + std::to_string(getpid());
            std::string file = root == "/sys/fs/cgroup" ? "/memory.max" : "/memory.limit_in_bytes";
            made_ = mkdir(path().c_str(), 0755) == 0 && write_file(path() + file, std::to_string(limit));
            if (made_)
                break;
            rmdir(path().c_str());
        }
    }
    ~MemoryCgroup() {
        if (made_)
            rmdir(path().c_str());
    }
    bool made() const { return made_; }
    /* For run_self: moves the child into the cgroup. */
    static void enter(long) {
        if (!write_file(path() + "/cgroup.procs", std::to_string(getpid())))
            _exit(125);
    }

  private:
    static std::string &path() {
        static std::string the_path;
        return the_path;
    }
    bool made_ = false;
};

/* ---- this program again, as a child ---- */

/* For a child process whose exit status is the verdict. */
#define MUST(condition, ...)                                                                                           \
    do                                                                                                                 \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "line %d: ", __LINE__);                                                                    \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fputc('\n', stderr);                                                                                       \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    while (0)

struct Outcome {
    int status = 0; /* as waitpid returns it */
    std::string out, err;
    pid_t process = 0;
    bool exited(int code) const { return WIFEXITED(status) && WEXITSTATUS(status) == code; }
    bool killed(int signal) const { return WIFSIGNALED(status) && WTERMSIG(status) == signal; }
    std::string describe() const {
        std::string text = WIFSIGNALED(status) ? "killed by signal " + std::to_string(WTERMSIG(status))
                                               : "exit status " + std::to_string(WEXITSTATUS(status));
        return text + "\n--- stdout\n" + out + "--- stderr\n" + err;
    }
};

inline std::string read_whole(int fd) {
    std::string text;
    char buffer[4096];
    lseek(fd, 0, SEEK_SET);
    for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) > 0;)
        text.append(buffer, static_cast<size_t>(n));
    close(fd);
    return text;
}

/* What an emulator says of a program that a signal ends is not the program's. */
inline std::string without_emulators_line(std::string text) {
    for (size_t at; (at = text.find("qemu: uncaught target signal ")) != std::string::npos;)
        text.erase(at, text.find('\n', at) - at + 1);
    return text;
}

constexpr unsigned kChildSeconds = 600; /* SIGALRM kills a child that hangs: no busy machine is so slow */

/* Runs `program` with `args` and with `env` ("NAME=value") added; `prepare` runs in the child before exec. */
inline Outcome run_program(const char *program, const std::vector<std::string> &args,
                           const std::vector<std::string> &env = {}, void (*prepare)(long) = nullptr,
                           long prepare_with = 0) {
    int out = memfd_create("out", 0), err = memfd_create("err", 0);
    std::vector<char *> argv{const_cast<char *>(program)};
    for (auto &arg : args)
        argv.push_back(const_cast<char *>(arg.c_str()));
    argv.push_back(nullptr);
    fflush(nullptr);
    pid_t pid = fork();
    if (pid == 0) {
        for (auto &entry : env)
            putenv(const_cast<char *>(entry.c_str()));
        dup2(out, 1);
        dup2(err, 2);
        alarm(kChildSeconds);
        if (prepare != nullptr)
            prepare(prepare_with);
        execv(program, argv.data());
        _exit(127);
    }
    Outcome outcome;
    outcome.process = pid;
    while (waitpid(pid, &outcome.status, 0) < 0 && errno == EINTR) {
    }
    outcome.out = read_whole(out);
    outcome.err = without_emulators_line(read_whole(err));
    return outcome;
}

inline Outcome run_self(const std::vector<std::string> &args, const std::vector<std::string> &env = {},
                        void (*prepare)(long) = nullptr, long prepare_with = 0) {
    return run_program("/proc/self/exe", args, env, prepare, prepare_with);
}

/* In main, before the tests: runs the case that `--case NAME` asks for. false: the program was not started for one. */
template <typename Cases> bool run_case(int argc, char **argv, const Cases &cases) {
    for (const auto &a : cases)
        if (argc == 3 && strcmp(argv[1], "--case") == 0 && strcmp(argv[2], a.name) == 0) {
            a.run();
            return true;
        }
    return false;
}

inline std::vector<std::string> lines_of(const std::string &text) {
    std::vector<std::string> lines;
    for (size_t at = 0; at < text.size();) {
        size_t end = text.find('\n', at);
        if (end == std::string::npos)
            end = text.size();
        lines.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return lines;
}

/* Without what follows a failure's line: the process, and the calls that led there. */
inline std::string without_calls(const std::string &err) {
    std::string left;
    for (auto &line : lines_of(err))
        if (line.rfind("hakmem:   ", 0) != 0)
            left += line + "\n";
    return left;
}

/* ---- programs that misuse the allocator: run_self({"--case", name, size}) ---- */

struct Misuse {
    std::string name;
    void (*run)(size_t size);
    const char *line; /* the line it must print, in the form that the test expects */
    std::vector<size_t> sizes;
};
inline void PrintTo(const Misuse &one, std::ostream *out) { *out << one.name; }

/* Returns the program's exit status if it survives the misuse, which the parent treats as a failure. */
inline int run_misuse(const std::vector<Misuse> &all, const std::string &name, size_t size) {
    for (auto &one : all)
        if (name == one.name)
            one.run(size);
    return 0;
}

/* Returns the block by a way that the compiler cannot follow. Through a place that threads share each would get the
 * block of another now and then. */
inline char *hidden(void *block) {
    static thread_local void *volatile place;
    place = block;
    return static_cast<char *>(place);
}

#endif
