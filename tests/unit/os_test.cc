/* What os.h asks of the kernel, word for word: this program's own syscall() notes it, and may answer in the kernel's
 * place. If it fails, HAKMEM waits for another time than it means, changes errno, which free must not, or leaves files
 * half written. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "../support.h"

extern "C" { /* os.h and scratch.h, which are C11 */
void os_wait(std::atomic<uint32_t> *word, uint32_t value, unsigned ms);
void os_wake(std::atomic<uint32_t> *word);
bool os_places_memory(void);
int os_move(void *from, void *to, size_t bytes); /* 0: nothing moved */
bool os_is_mapped(void *address, size_t bytes);
bool os_map_copy(int fd, void *address, size_t bytes);
void nodes_init(unsigned wanted);
void os_write(int fd, const char *text, size_t bytes);
size_t os_read_file(const char *path, char *buffer, size_t bytes);
size_t os_read_at(int fd, void *buffer, size_t bytes, uint64_t place);
int os_open_input(const char *path);
int os_open_file(const char *path);
int os_open_output(const char *path);
bool os_is_device(const char *path);
uint64_t os_written(int fd);
void os_copy_file(int fd, const char *path, char *buffer, size_t bytes);
void os_make_templates(void *address, bool huge);
void os_watch_switches(void);
bool os_was_switched(void);
/* os_merge.h */
struct os_hold {
    int fd;
    bool holds_files;
    uint64_t signals;
};
bool os_hold_begin(struct os_hold *hold);
int os_open_memory(size_t bytes);
extern const unsigned __rseq_size __attribute__((weak)); /* NOLINT: its name */
bool is_all_zero(const void *words, size_t bytes);
void *scratch_take(void);
void scratch_give(void *scratch);
}

namespace {

struct Call {
    long number, words[6];
};
using Answers = std::function<long(const Call &)>;
Answers answers; /* those of the kernel, if there are none */

long kernel(const Call &c) {
    static auto *real = reinterpret_cast<long (*)(long, ...)>(dlsym(RTLD_NEXT, "syscall"));
    return real(c.number, c.words[0], c.words[1], c.words[2], c.words[3], c.words[4], c.words[5]);
}

/* While it lives, it answers; it notes what was asked. */
class Kernel {
  public:
    explicit Kernel(const Answers &says = kernel) {
        answers = [this, says](const Call &c) {
            calls.push_back(c);
            return says(c);
        };
    }
    ~Kernel() { answers = nullptr; }
    std::vector<Call> calls;
};
long refuses(const Call &) {
    errno = EIO;
    return -1;
}

} // namespace

static const char *told_release; /* NULL: the kernel's own */
static int refused_huge;         /* pieces of memory that are to have no huge pages */
static char *unmapped_page;      /* the page of its target that a refused move leaves without memory */
/* These stand in for libc's. */
extern "C" int uname(struct utsname *system) noexcept {
    if (told_release == nullptr)
        return static_cast<int>(kernel({SYS_uname, {reinterpret_cast<long>(system)}}));
    strcpy(system->release, told_release);
    return 0;
}
extern "C" int madvise(void *address, size_t bytes, int advice) noexcept {
    refused_huge += advice == MADV_NOHUGEPAGE;
    return static_cast<int>(kernel({SYS_madvise, {reinterpret_cast<long>(address), static_cast<long>(bytes), advice}}));
}
static bool is_several;    /* what is to move, mappings: a kernel before 6.17 cannot move them */
static unsigned destroyed; /* targets that such a kernel has unmapped before it refused */
extern "C" void *mremap(void *, size_t, size_t, int flags, ...) noexcept {
    if (is_several) {
        destroyed += flags != 0;
        errno = EFAULT;
        return MAP_FAILED;
    }
    munmap(unmapped_page, static_cast<size_t>(getpagesize()));
    errno = ENOMEM;
    return MAP_FAILED;
}
extern "C" long syscall(long number, ...) noexcept {
    Call c = {number, {}};
    va_list words;
    va_start(words, number);
    for (long &word : c.words)
        word = va_arg(words, long);
    va_end(words);
    return answers ? answers(c) : kernel(c);
}

namespace {

class File {
  public:
    File() { close(mkstemp(path_)); }
    ~File() { unlink(path_); }
    const char *path() const { return path_; }

  private:
    char path_[32] = "/tmp/hakmem-os-XXXXXX";
};

/* ---- waiting ---- */

TEST(OsWait, ForAsLongAsItSays) {
    std::atomic<uint32_t> word{7};
    struct timespec time = {};
    Kernel noted([&](const Call &c) {
        EXPECT_EQ(c.number, SYS_futex);
        EXPECT_EQ(c.words[0], reinterpret_cast<long>(&word));
        EXPECT_EQ(c.words[2], 7);
        if (c.words[3] != 0)
            time = *reinterpret_cast<struct timespec *>(c.words[3]);
        errno = ETIMEDOUT;
        return -1l;
    });
    for (unsigned ms : {1u, 999u, 1000u, 1999u, 60001u}) {
        errno = EDOM;
        os_wait(&word, 7, ms);
        EXPECT_EQ(errno, EDOM);
        EXPECT_EQ(time.tv_sec, ms / 1000) << ms;
        EXPECT_EQ(time.tv_nsec, ms % 1000 * 1000000) << ms;
    }
    os_wait(&word, 7, UINT32_MAX);
    EXPECT_EQ(noted.calls.back().words[3], 0) << "without end";
}

TEST(OsWait, WakesAll) {
    std::atomic<uint32_t> word{0};
    Kernel noted(refuses);
    errno = EDOM;
    os_wake(&word);
    EXPECT_EQ(errno, EDOM);
    EXPECT_EQ(noted.calls.at(0).words[2], INT_MAX);
}

/* ---- where memory lies ---- */

/* Policies as in the kernel's headers: 0 is the default, 4 is local. Any word of the call that is not what it must be
 * would be refused. */
TEST(OsPolicy, IsAskedForAsTheKernelExpects) {
    for (int policy : {0, 1, 2, 3, 4}) {
        Kernel says([&](const Call &c) {
            if (c.number == SYS_prctl)
                return 0l;
            EXPECT_EQ(c.number, SYS_get_mempolicy);
            for (int word : {1, 2, 3, 4})
                EXPECT_EQ(c.words[word], 0) << word;
            memcpy(reinterpret_cast<void *>(c.words[0]), &policy, sizeof policy);
            return 0l;
        });
        EXPECT_EQ(os_places_memory(), policy != 0 && policy != 4) << policy;
    }
    Kernel filters([](const Call &c) { return c.number == SYS_prctl ? 2l : 0l; });
    EXPECT_FALSE(os_places_memory());
    EXPECT_EQ(filters.calls.size(), 1u) << "a filter may end the program at the next call";
}

/* From Linux 6.7 on, memory mapped for a stack has no huge pages; before, a template must refuse them. */
TEST(OsTemplates, AreMadeWhereTheKernelNeedsThem) {
    constexpr size_t kTemplate = 16 * kMiB;
    struct {
        const char *release;
        int plain;
    } kernels[] = {{"6.6.99", 1}, {"6.7.0", 0}, {"6.10.1", 0}, {"5.15.0-7-generic", 1},
                   {"10.0.1", 0}, {"7.0", 0},   {"6.7", 0},    {"4.19", 1},
                   {"16.2", 0},   {"6", 1}};
    for (auto &[release, plain] : kernels) {
        pid_t child = fork();
        if (child == 0) { /* whose templates are its own */
            void *at = mmap(nullptr, 2 * kTemplate, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            told_release = release;
            os_make_templates(at, false);
            _exit(refused_huge);
        }
        int status = -1;
        waitpid(child, &status, 0);
        EXPECT_EQ(WEXITSTATUS(status), plain) << release;
    }
}

/* The kernel answers as on a machine with two nodes. If it fails, each program there has a file open that it did not
 * open. */
TEST(OsNodes, TheLookForASecondOneLeavesNoFileOpen) {
    pid_t child = fork();
    if (child == 0) { /* which has not looked yet */
        long opened = -1;
        bool closed = false;
        Kernel says([&](const Call &c) {
            bool asks = c.number == SYS_openat &&
                        strcmp(reinterpret_cast<const char *>(c.words[1]), "/sys/devices/system/node/node1") == 0;
            if (asks)
                return opened = open("/", O_RDONLY | O_CLOEXEC);
            closed |= c.number == SYS_close && c.words[0] == opened;
            return kernel(c);
        });
        nodes_init(0);
        _exit(opened < 0 ? 1 : closed ? 0 : 2);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(WEXITSTATUS(status), 0);
}

/* ---- moving ---- */

/* A refused move may unmap any page of its target. If the test fails, other threads' mappings get there, and are
 * overwritten. */
TEST(OsMove, WhatARefusalUnmappedIsMappedAgain) {
    constexpr size_t kBytes = 6 * kMiB;
    auto map = [] {
        return static_cast<char *>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    };
    char *from = map(), *to = map();
    memset(from, 1, kBytes);
    for (size_t at : {size_t{0}, 3 * kMiB, 5 * kMiB}) {
        unmapped_page = to + at;
        EXPECT_EQ(os_move(from, to, kBytes), 0);
        EXPECT_TRUE(os_is_mapped(to, kBytes)) << at;
        EXPECT_EQ(from[at], 1);
    }
    is_several = true;
    EXPECT_EQ(os_move(from, to, kBytes), 0);
    EXPECT_EQ(destroyed, 0u) << "an old kernel was asked to move several mappings, and has unmapped the target";
    is_several = false;
    munmap(from, kBytes);
    munmap(to, kBytes);
}

/* ---- merging ---- */

/* If it fails, a program that another thread starts meanwhile inherits what holds this one's writes. */
TEST(OsMerge, WhatHoldsWritesEndsWithTheProgram) {
    int pipes[2];
    ASSERT_EQ(pipe(pipes), 0);
    pthread_t other;
    auto waits = [](void *at) -> void * { return read(*static_cast<int *>(at), &at, 1) < 0 ? at : nullptr; };
    ASSERT_EQ(pthread_create(&other, nullptr, waits, pipes), 0);
    struct os_hold hold = {};
    {
        Kernel says([](const Call &c) {
            if (c.number != SYS_userfaultfd)
                return kernel(c);
            EXPECT_EQ(c.words[0] & ~1l, O_CLOEXEC | O_NONBLOCK);
            errno = EPERM; /* without the right, at both tries */
            return -1l;
        });
        EXPECT_FALSE(os_hold_begin(&hold));
        EXPECT_EQ(
            std::count_if(says.calls.begin(), says.calls.end(), [](auto &c) { return c.number == SYS_userfaultfd; }),
            2);
    }
    close(pipes[1]);
    pthread_join(other, nullptr);
    close(pipes[0]);
}

/* Before Linux 6.3 the kernel knows no file that is never executed. */
TEST(OsMerge, AFileIsToBeHadFromAnOldKernelToo) {
    std::vector<long> asked;
    Kernel says([&](const Call &c) {
        if (c.number != SYS_memfd_create)
            return kernel(c);
        asked.push_back(c.words[1]);
        if (c.words[1] == 1) /* MFD_CLOEXEC */
            return kernel(c);
        errno = EINVAL;
        return -1l;
    });
    errno = EDOM;
    int fd = os_open_memory(4096);
    EXPECT_GE(fd, 0);
    EXPECT_EQ(errno, EDOM);
    EXPECT_EQ(asked, (std::vector<long>{1 | 8, 1}));
    close(fd);
}

/* ---- zero ---- */

/* Else what a busy machine makes of a time decides what the heap does. */
TEST(OsSwitches, AreSeenWhereTheKernelTells) {
    bool tells = &__rseq_size != nullptr && __rseq_size != 0, quiet = false;
    os_watch_switches();
    usleep(1); /* waits in the kernel */
    EXPECT_EQ(os_was_switched(), tells);
    for (int i = 0; i < 1000000 && !quiet; i++) {
        os_watch_switches();
        quiet = !os_was_switched();
    }
    EXPECT_TRUE(quiet) << "a thread that did nothing was always switched out";
}

TEST(Zero, EveryByteCounts) {
    alignas(64) static char bytes[4096];
    EXPECT_TRUE(is_all_zero(bytes, sizeof bytes));
    for (char &byte : bytes) {
        byte = 1;
        EXPECT_FALSE(is_all_zero(bytes, sizeof bytes)) << &byte - bytes;
        byte = 0;
    }
}

/* ---- room for reports ---- */

TEST(Scratch, TwoUsersDoNotShare) {
    void *first = scratch_take(), *second = scratch_take();
    EXPECT_NE(first, second);
    scratch_give(first);
    EXPECT_EQ(scratch_take(), first) << "the library's own piece is not given back";
    scratch_give(second);
    scratch_give(first);
}

/* ---- files ---- */

TEST(OsFiles, WhatIsRefusedKeepsErrno) {
    File file;
    char buffer[8];
    int fd = open(file.path(), O_RDWR);
    Kernel noted(refuses);
    errno = EDOM;
    os_write(fd, "text", 4);
    EXPECT_EQ(errno, EDOM);
    EXPECT_EQ(os_read_at(fd, buffer, sizeof buffer, 0), 0u);
    EXPECT_EQ(errno, EDOM);
    EXPECT_EQ(os_read_file(file.path(), buffer, sizeof buffer), 0u);
    EXPECT_EQ(errno, EDOM);
    EXPECT_EQ(os_open_input(file.path()), -1);
    EXPECT_EQ(os_open_file(file.path()), -1);
    EXPECT_EQ(os_open_output(file.path()), -1);
    EXPECT_FALSE(os_is_device(file.path()));
    EXPECT_EQ(os_written(fd), 0u);
    os_copy_file(fd, file.path(), buffer, sizeof buffer);
    EXPECT_EQ(errno, EDOM);
    answers = [&](const Call &c) { return c.number == SYS_read ? refuses(c) : kernel(c); };
    EXPECT_EQ(os_read_file(file.path(), buffer, sizeof buffer), 0u) << "opened, but not to be read";
    EXPECT_EQ(errno, EDOM);
    close(fd);
}

TEST(OsFiles, WhatCannotBeMappedKeepsErrno) {
    void *at = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    errno = EDOM;
    EXPECT_FALSE(os_map_copy(-1, at, 4096));
    EXPECT_EQ(errno, EDOM);
    munmap(at, 4096);
}

TEST(OsFiles, InterruptedAndPartialWritesGoOn) {
    std::string got;
    int turn = 0;
    Kernel says([&](const Call &c) {
        EXPECT_EQ(c.number, SYS_write);
        if (turn++ % 2 == 0) {
            errno = EINTR;
            return -1l;
        }
        got.append(reinterpret_cast<const char *>(c.words[1]), std::min(c.words[2], 3l));
        return std::min(c.words[2], 3l);
    });
    os_write(1, "abcdefgh", 8);
    EXPECT_EQ(got, "abcdefgh");
}

TEST(OsFiles, AnInterruptedReadGoesOn) {
    File file;
    write_file(file.path(), "0123456789");
    char buffer[5];
    int interruptions = 2;
    Kernel says([&](const Call &c) {
        if (c.number != SYS_read || interruptions-- <= 0)
            return kernel(c);
        errno = EINTR;
        return -1l;
    });
    EXPECT_EQ(os_read_file(file.path(), buffer, sizeof buffer), 4u) << "room for the end";
    EXPECT_STREQ(buffer, "0123");
    int fd = os_open_file(file.path());
    EXPECT_EQ(os_read_at(fd, buffer, 3, 4), 3u);
    EXPECT_EQ(memcmp(buffer, "456", 3), 0);
    EXPECT_EQ(os_read_at(fd, buffer, 5, 8), 2u);
    EXPECT_EQ(os_read_at(fd, buffer, 5, 10), 0u);
    close(fd);
}

/* What errno was before says nothing of a file that ends at once. */
TEST(OsFiles, AnEmptyFileIsReadOnce) {
    File file;
    char buffer[8];
    Kernel noted;
    errno = EINTR;
    EXPECT_EQ(os_read_file(file.path(), buffer, sizeof buffer), 0u);
    EXPECT_EQ(std::count_if(noted.calls.begin(), noted.calls.end(), [](auto &c) { return c.number == SYS_read; }), 1);
}

TEST(OsFiles, AFileIsCopiedWhateverTheBuffer) {
    File from, to;
    write_file(from.path(), "0123456789");
    int fd = os_open_output(to.path());
    char buffer[3];
    os_copy_file(fd, from.path(), buffer, sizeof buffer);
    EXPECT_EQ(os_written(fd), 10u);
    close(fd);
    EXPECT_EQ(os_read_file(to.path(), buffer, sizeof buffer), 2u);
}

/* Between the look at a name and its opening somebody may put another thing there: then that is closed again. */
TEST(OsFiles, WhatWasExchangedMeanwhileIsNotUsed) {
    File file;
    std::vector<long> opened, closed;
    auto exchanged = [&](mode_t mode, uid_t user) {
        return [&, mode, user](const Call &c) {
            long got = kernel(c);
            if (c.number == SYS_newfstatat && (c.words[3] & AT_EMPTY_PATH) != 0) {
                auto *s = reinterpret_cast<struct stat *>(c.words[2]);
                s->st_mode = mode, s->st_uid = user;
            }
            if (c.number == SYS_openat && got >= 0)
                opened.push_back(got);
            if (c.number == SYS_close)
                closed.push_back(c.words[0]);
            return got;
        };
    };
    {
        Kernel says(exchanged(S_IFIFO | 0600, geteuid()));
        EXPECT_EQ(os_open_file(file.path()), -1);
    }
    {
        Kernel says(exchanged(S_IFREG | 0600, 12345));
        EXPECT_EQ(os_open_output(file.path()), -1);
    }
    EXPECT_EQ(opened.size(), 2u);
    EXPECT_EQ(closed, opened);
}

/* What is there is emptied if it is a file of this user's under one name, and nothing else is touched. */
TEST(OsFiles, OutputGoesToOwnFilesAlone) {
    File file, other;
    std::string link = std::string(file.path()) + "-link";
    write_file(file.path(), "before");
    int fd = os_open_output(file.path());
    ASSERT_GE(fd, 0);
    os_write(fd, "new", 3);
    close(fd);
    char text[16];
    EXPECT_EQ(os_read_file(file.path(), text, sizeof text), 3u);
    ASSERT_EQ(symlink(file.path(), link.c_str()), 0);
    EXPECT_EQ(os_open_output(link.c_str()), -1) << "a symbolic link";
    unlink(link.c_str());
    ASSERT_EQ(::link(file.path(), link.c_str()), 0);
    EXPECT_EQ(os_open_output(link.c_str()), -1) << "a second name";
    unlink(link.c_str());
    EXPECT_EQ(os_open_output("/absent/file"), -1);
    EXPECT_EQ(os_read_file(file.path(), text, sizeof text), 3u);
    for (const char *device : {"/dev/null", "/dev/fd/1", "/proc/self/fd/1"})
        EXPECT_TRUE(os_is_device(device)) << device;
    for (const char *none : {"/dev/", "/dev/fd/", "/dev/..", "/dev/shm/x", "/proc/self/cwd/x", file.path()})
        EXPECT_FALSE(os_is_device(none)) << none;
}

} // namespace
