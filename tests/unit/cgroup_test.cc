/* The limits of memory cgroups, and memory pressure, read from simulated files and from a real cgroup. If it fails,
 * programs in containers are killed although they could have shrunk, or are refused memory they may have. The process
 * itself has one thread, so nobody else reads the files. */
/* SPDX-License-Identifier: MIT */
#include <atomic>
#include <filesystem>
#include <thread>

#include "limits_kit.h"

namespace {

/* ---- cgroups and pressure, in a simulated tree of files ---- */

class Tree {
  public:
    Tree() {
        char name[] = "/tmp/hakmem-tree-XXXXXX";
        root_ = mkdtemp(name);
        inside_limits_set_root(root_.c_str());
    }
    ~Tree() {
        inside_limits_set_root("");
        std::filesystem::remove_all(root_);
    }
    void file(const std::string &path, const std::string &text) {
        std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
        ASSERT_TRUE(write_file(root_ + path, text)) << path;
    }
    const std::string &root() const { return root_; }
    void none(const std::string &path) { std::filesystem::remove_all(root_ + path); }
    static uint64_t limit() {
        errno = EDOM;
        inside_limits_refresh();
        EXPECT_EQ(errno, EDOM);
        return inside_limits_cgroup_bytes();
    }

  private:
    std::string root_;
};

constexpr uint64_t kNone = UINT64_MAX;

TEST(Cgroup, VersionTwo) {
    Tree tree;
    EXPECT_EQ(Tree::limit(), kNone) << "no files at all";
    tree.file("/proc/self/cgroup", "0::/a/b\n");
    EXPECT_EQ(Tree::limit(), kNone) << "no controller";
    tree.file("/sys/fs/cgroup/a/b/memory.max", "300000000\n");
    EXPECT_EQ(Tree::limit(), 300000000u) << "its own";
    tree.file("/sys/fs/cgroup/a/b/memory.high", "250000000\n");
    EXPECT_EQ(Tree::limit(), 250000000u) << "memory.high";
    tree.file("/sys/fs/cgroup/a/memory.max", "200000000\n");
    EXPECT_EQ(Tree::limit(), 200000000u) << "an ancestor's";
    tree.file("/sys/fs/cgroup/a/memory.max", "max\n");
    EXPECT_EQ(Tree::limit(), 250000000u);
    tree.none("/sys/fs/cgroup/a/b");
    EXPECT_EQ(Tree::limit(), kNone) << "it was removed";
}

/* A container sees its own cgroup as the root, or a path that does not exist. */
TEST(Cgroup, InAContainer) {
    Tree tree;
    tree.file("/sys/fs/cgroup/memory.max", "100000000\n");
    tree.file("/proc/self/cgroup", "0::/\n");
    EXPECT_EQ(Tree::limit(), 100000000u);
    tree.file("/proc/self/cgroup", "0::/docker/0123456789abcdef\n");
    EXPECT_EQ(Tree::limit(), 100000000u);
    tree.file("/proc/self/cgroup", "0::/../..\n");
    EXPECT_EQ(Tree::limit(), 100000000u);
}

TEST(Cgroup, VersionOne) {
    Tree tree;
    tree.file("/proc/self/cgroup", "9:name=systemd:/x\n4:memory:/group/one\n1:cpu,cpuacct:/memory\n0::/\n");
    tree.file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    EXPECT_GE(Tree::limit(), uint64_t{1} << 62) << "no limit, as version 1 writes it";
    tree.file("/sys/fs/cgroup/memory/group/one/memory.limit_in_bytes", "134217728\n");
    EXPECT_EQ(Tree::limit(), 134217728u);
    tree.file("/sys/fs/cgroup/memory/group/memory.limit_in_bytes", "67108864\n");
    EXPECT_EQ(Tree::limit(), 67108864u);
}

TEST(Cgroup, NamesMayLookLikeKeys) {
    Tree tree;
    tree.file("/proc/self/cgroup", "0::/a@:memory:.service\n");
    tree.file("/sys/fs/cgroup/a@:memory:.service/memory.max", "1000000\n");
    EXPECT_EQ(Tree::limit(), 1000000u);
    tree.file("/proc/self/cgroup", "1:name=systemd:/x@2001:db8:0::7.service\n0::/b\n");
    tree.file("/sys/fs/cgroup/b/memory.max", "2000000\n");
    EXPECT_EQ(Tree::limit(), 2000000u);
}

TEST(Cgroup, NonsenseIsNoLimit) {
    Tree tree;
    for (std::string text : {"", "\n", "0::", "0::x", "0::x/y", "::::", "0:memory", "\0\0", "0::/a"}) {
        tree.file("/proc/self/cgroup", text);
        EXPECT_EQ(Tree::limit(), kNone) << text;
    }
    for (std::string text : {"", "\n", "-5", "99999999999999999999999999", "max", " 5"}) {
        tree.file("/sys/fs/cgroup/a/memory.max", text);
        EXPECT_EQ(Tree::limit(), kNone) << text;
    }
    tree.file("/sys/fs/cgroup/memory.max", "7\n");
    tree.file("/proc/self/cgroup", "0::" + std::string(3000, '/') + "\n");
    Tree::limit();
    tree.file("/proc/self/cgroup", "0::/" + std::string(3000, 'a') + "\n");
    EXPECT_EQ(Tree::limit(), kNone) << "too long a path is not cut off";
}

TEST(Cgroup, CanBeTurnedOff) {
    Tree tree;
    tree.file("/proc/self/cgroup", "0::/\n");
    tree.file("/sys/fs/cgroup/memory.max", "100000000\n");
    EXPECT_EQ(Tree::limit(), 100000000u);
    Setting off("CGROUP", 0);
    EXPECT_EQ(inside_limits_cgroup_bytes(), kNone);
    EXPECT_EQ(Tree::limit(), kNone);
}

TEST(Pressure, ComesFromTheCgroupOrTheMachine) {
    Tree tree;
    auto scarce = [] {
        errno = EDOM;
        bool is = inside_limits_scarce() != 0;
        EXPECT_EQ(errno, EDOM);
        return is;
    };
    Setting usual("PRESSURE", 10);
    EXPECT_FALSE(scarce()) << "no files";
    tree.file("/proc/pressure/memory", "some avg10=9.99 avg60=80.00 avg300=80.00 total=1\nfull avg10=50.00\n");
    EXPECT_FALSE(scarce());
    tree.file("/proc/pressure/memory", "some avg10=10.00 avg60=0.00 avg300=0.00 total=1\nfull avg10=0.00\n");
    EXPECT_TRUE(scarce());
    tree.file("/proc/self/cgroup", "0::/a\n");
    EXPECT_TRUE(scarce()) << "the cgroup tells nothing";
    tree.file("/sys/fs/cgroup/a/memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n");
    EXPECT_FALSE(scarce()) << "the cgroup's goes before the machine's";
    tree.file("/sys/fs/cgroup/a/memory.pressure", "some avg10=72.31 avg60=0.00 avg300=0.00 total=1\n");
    EXPECT_TRUE(scarce());
    {
        Setting high("PRESSURE", 73);
        EXPECT_FALSE(scarce());
    }
    {
        Setting never("PRESSURE", 0);
        EXPECT_FALSE(scarce());
    }
    tree.file("/sys/fs/cgroup/a/memory.pressure", "avg10=72.31\n");
    EXPECT_TRUE(scarce()) << "unreadable: the machine's";
}

/* ---- a process of its own ---- */

/* Runs under a cgroup limit of 100 MiB. */
void child_in_cgroup() {
    Blocks blocks(320 * kKiB);
    Setting retain("RETAIN_BYTES", kGiB);
    inside_limits_start();
    inside_limits_set_root("/none"); /* no file is read from here on */
    blocks.grow_to(70 * kMiB);
    if (inside_limits_cgroup_bytes() != 100 * kMiB)
        give_up("not known since the start", inside_limits_cgroup_bytes());
    blocks.shrink_to_bytes(40 * kMiB);
    if (inside_pool_count().empty_slots < 20 * kMiB / kSlot)
        give_up("retained far from the limit", inside_pool_count().empty_slots);
    blocks.grow_to(95 * kMiB);
    blocks.shrink_to_bytes(80 * kMiB);
    if (!inside_limits_near() || inside_pool_count().empty_slots > 8)
        give_up("retained near the limit", inside_pool_count().empty_slots);
    blocks.grow_to(150 * kMiB);
    if (blocks.bytes() < 150 * kMiB)
        give_up("refused because of the cgroup", blocks.bytes());
}

/* The limit is lowered while the program runs, and its purger notices. */
void child_whose_limit_changes(const std::string &root) {
    std::atomic<bool> end{false};
    std::thread other([&] {
        hak_free(hak_malloc(100));
        while (!end)
            usleep(1000);
    });
    inside_limits_start();
    if (inside_limits_cgroup_bytes() != 400 * kMiB)
        give_up("the limit at the start", inside_limits_cgroup_bytes());
    write_file(root + "/sys/fs/cgroup/a/memory.max", std::to_string(200 * kMiB) + "\n");
    Blocks blocks(320 * kKiB);
    blocks.grow_to(70 * kMiB);
    for (int i = 0; i < 20000 && inside_limits_cgroup_bytes() != 200 * kMiB; i++) {
        for (int j = 0; j < 3; j++)
            hak_free(hak_malloc(3 * kMiB)); /* settles, so the program is not idle */
        usleep(500);
    }
    if (inside_limits_cgroup_bytes() != 200 * kMiB)
        give_up("the new limit was not found", inside_limits_cgroup_bytes());
    end = true;
    other.join();
}

/* A busy program with threads: it keeps 10 % and more, but under pressure only RETAIN_BYTES. */
void child_under_pressure(const std::string &root) {
    std::atomic<bool> end{false};
    std::thread other([&] {
        hak_free(hak_malloc(100));
        while (!end)
            usleep(1000);
    });
    Blocks live(192 * kKiB), freed(192 * kKiB);
    live.grow_to(30 * kMiB);
    freed.grow_to(60 * kMiB);
    freed.shrink(0);
    size_t empty = inside_pool_count().empty_slots;
    write_file(root + "/proc/pressure/memory", "some avg10=80.00 avg60=0.00 avg300=0.00 total=1\n");
    for (int i = 0; i < 20000 && inside_pool_count().empty_slots > 3 * kMiB / kSlot; i++) {
        for (int j = 0; j < 3; j++)
            hak_free(hak_malloc(3 * kMiB)); /* settles, so the program is not idle */
        usleep(500);
    }
    if (empty < 50 * kMiB / kSlot)
        give_up("EMPTY slots before", empty);
    if (inside_pool_count().empty_slots > 3 * kMiB / kSlot)
        give_up("EMPTY slots are retained under pressure", inside_pool_count().empty_slots);
    end = true;
    other.join();
}

/* `hakmem purge` wants LAZY slots back, too: the purger gives them while the program sleeps. */
void child_asked_for_lazy_slots() {
    std::atomic<bool> end{false};
    std::thread other([&] {
        hak_free(hak_malloc(100));
        while (!end)
            usleep(1000);
    });
    Blocks freed(192 * kKiB);
    freed.grow_to(60 * kMiB);
    freed.shrink(0);
    hak_free(hak_malloc(3 * kMiB)); /* settles */
    inside_ask_for_purge();
    for (int i = 0; i < 20000 && inside_pool_count().lazy_slots != 0; i++)
        usleep(500);
    if (inside_pool_count().lazy_slots != 0)
        give_up("LAZY slots stay", inside_pool_count().lazy_slots);
    end = true;
    other.join();
}

void child_in_real_cgroup(size_t limit) {
    if (inside_limits_cgroup_bytes() != limit)
        give_up("the limit was not found", inside_limits_cgroup_bytes());
}

int run_child(const std::string &name, const char *argument) {
    size_t number = strtoul(argument, nullptr, 10);
    if (name == "cgroup" || name == "pressure" || name == "changes")
        inside_limits_set_root(argument);
    if (name == "cgroup")
        child_in_cgroup();
    if (name == "changes")
        child_whose_limit_changes(argument);
    if (name == "pressure")
        child_under_pressure(argument);
    if (name == "lazy")
        child_asked_for_lazy_slots();
    if (name == "real")
        child_in_real_cgroup(number);
    return 0;
}

/* The start takes as few system calls as possible: it reads one file besides the list of cgroups. */
TEST(Cgroup, BeginsWithTheNearestLimit) {
    Tree tree;
    auto limit = [] {
        inside_limits_start();
        uint64_t at_start = inside_limits_cgroup_bytes();
        Tree::limit();
        return at_start;
    };
    tree.file("/proc/self/cgroup", "0::/a/b\n");
    tree.file("/sys/fs/cgroup/a/memory.max", "200000000\n");
    EXPECT_EQ(limit(), 200000000u) << "the nearest that can be seen";
    tree.file("/sys/fs/cgroup/a/b/memory.max", "300000000\n");
    EXPECT_EQ(limit(), 300000000u) << "its own";
    EXPECT_EQ(Tree::limit(), 200000000u) << "later the least";
    tree.file("/sys/fs/cgroup/a/b/memory.max", "max\n");
    EXPECT_EQ(limit(), kNone);
    tree.file("/proc/self/cgroup", "4:memory:/group\n0::/a\n");
    EXPECT_EQ(limit(), kNone);
    tree.file("/sys/fs/cgroup/memory/group/memory.limit_in_bytes", "134217728\n");
    EXPECT_EQ(limit(), 134217728u) << "version 1, where that has the memory controller";
    Setting off("CGROUP", 0);
    EXPECT_EQ(limit(), kNone);
}

/* The program asks for the limit, so that is the time to read it. */
TEST(Cgroup, IsReadWhenTurnedOn) {
    Tree tree;
    tree.file("/proc/self/cgroup", "0::/\n");
    tree.file("/sys/fs/cgroup/memory.max", "100000000\n");
    {
        Setting off("CGROUP", 0);
        inside_limits_start();
        EXPECT_EQ(inside_limits_cgroup_bytes(), kNone);
    }
    EXPECT_EQ(inside_limits_cgroup_bytes(), 100000000u);
}

TEST(Cgroup, ThePurgerFindsANewLimit) {
    Tree tree;
    tree.file("/proc/self/cgroup", "0::/a\n");
    tree.file("/sys/fs/cgroup/a/memory.max", std::to_string(400 * kMiB) + "\n");
    Outcome outcome = run_self({"--child", "changes", tree.root()}, {"HAKMEM_PRESSURE=10"});
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
}

TEST(Cgroup, IsKnownFromTheStart) {
    Tree tree;
    tree.file("/proc/self/cgroup", "0::/\n");
    tree.file("/sys/fs/cgroup/memory.max", std::to_string(100 * kMiB) + "\n");
    Outcome outcome = run_self({"--child", "cgroup", tree.root()});
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
}

TEST(Pressure, ThePurgerActsAsIfIdle) {
    Tree tree;
    tree.file("/proc/pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n");
    Outcome outcome =
        run_self({"--child", "pressure", tree.root()}, {"HAKMEM_RETAIN_PERCENT=1000", "HAKMEM_PRESSURE=10"});
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
}

TEST(Cgroup, WorksInARealCgroup) {
    constexpr size_t kLimit = 96 * kMiB;
    MemoryCgroup cgroup(kLimit);
    if (!cgroup.made())
        GTEST_SKIP() << "no memory cgroup can be made here";
    Outcome outcome = run_self({"--child", "real", std::to_string(kLimit)}, {}, MemoryCgroup::enter);
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
}

bool all_resident(const std::vector<char *> &pages) {
    unsigned char resident = 1;
    for (char *page : pages)
        if (mincore(page, 1, &resident) != 0 || (resident & 1) == 0)
            return false;
    return true;
}

/* As `hakmem purge` asks for it: without a purger, a thread gives back what it holds at its next allocation that misses
 * alloc.h's hit path, of whatever size, also from a ring. If it fails, the only way to shrink a program that has grown
 * is to restart it. */
class Asked : public testing::TestWithParam<size_t> {};

TEST_P(Asked, AThreadGivesBackWhatItHoldsBack) {
    constexpr size_t kBytes = 32 * kKiB, kPage = 4096, kMost = 100000;
    if (sysconf(_SC_PAGESIZE) != kPage)
        GTEST_SKIP() << "two blocks may share a page";
    size_t next = GetParam();
    std::vector<char *> pages, blocks;
    hak_free(hak_malloc(next)); /* puts one block in the ring, for sizes that have a ring */
    for (int i = 0; i < 16; i++) {
        auto *block = static_cast<char *>(hak_malloc(kBytes));
        memset(block, 1, kBytes);
        blocks.push_back(block);
        pages.push_back(reinterpret_cast<char *>(reinterpret_cast<uintptr_t>(block) / kPage * kPage + kPage));
    }
    for (char *block : blocks)
        hak_free(block);
    ASSERT_TRUE(all_resident(pages)) << "nothing is held back, so this tests nothing";
    inside_ask_for_purge();
    std::vector<void *> more; /* for tiny sizes, enough to empty the list */
    do
        more.push_back(hak_malloc(next));
    while (next <= kKiB && more.size() < kMost && all_resident(pages));
    unsigned char resident;
    auto is_used_again = [&](char *page) { return page >= more[0] && page < static_cast<char *>(more[0]) + next; };
    for (char *page : pages)
        EXPECT_TRUE(mincore(page, 1, &resident) != 0 || (resident & 1) == 0 || is_used_again(page)) << "still resident";
    for (void *block : more)
        hak_free(block);
}

TEST(AskedPurger, GivesLazySlotsBack) {
    Outcome outcome = run_self({"--child", "lazy", ""}, {"HAKMEM_PURGE=lazy", "HAKMEM_DECAY_MS=600000"});
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
}

/* A thread answers once: what it is asked later, about something else, must not cost it its caches. */
TEST(AskedOnce, IsAnsweredOnce) {
    constexpr size_t kBytes = 32 * kKiB, kPage = 4096;
    if (sysconf(_SC_PAGESIZE) != kPage)
        GTEST_SKIP() << "two blocks may share a page";
    inside_ask_for_purge();
    hak_free(hak_malloc(3 * kMiB));
    std::vector<char *> pages, blocks;
    for (int i = 0; i < 8; i++) {
        blocks.push_back(static_cast<char *>(hak_malloc(kBytes)));
        memset(blocks.back(), 1, kBytes);
        pages.push_back(reinterpret_cast<char *>(reinterpret_cast<uintptr_t>(blocks[i]) / kPage * kPage + kPage));
    }
    for (char *block : blocks)
        hak_free(block);
    inside_ask();
    hak_free(hak_malloc(3 * kMiB));
    EXPECT_TRUE(all_resident(pages)) << "it gives back again what it was asked for once";
}

INSTANTIATE_TEST_SUITE_P(Tiers, Asked, testing::Values(48, 2000, 20 * kKiB, 64 * kKiB, 200 * kKiB, kMiB, 3 * kMiB));

} // namespace

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "--child") == 0)
        return run_child(argv[2], argv[3]);
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
