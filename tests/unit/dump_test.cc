/* Profiles and statistics of running programs: when they are written, how they are called, and what they say. Children
 * run; what they leave in a directory is looked at. If it fails, somebody who waits for a leak to show has no file when
 * it does. */
/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <gtest/gtest.h>
#include <hakmem.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "../posix_regex.h"
#include "../support.h"

/* Runs behind the library's own end. */
static bool terminated_late = false;
__attribute__((destructor(101))) static void at_the_very_end() {
    if (terminated_late)
        raise(SIGTERM);
}

namespace {

/* A child's programs. Blocks of 100,000 bytes are all sampled at PROFILE_BYTES=1000. */
constexpr size_t kBytes = 100000;

std::vector<void *> hold(size_t bytes) {
    std::vector<void *> blocks;
    for (size_t had = 0; had < bytes; had += kBytes)
        blocks.push_back(hak_malloc(kBytes));
    return blocks;
}

extern const std::map<std::string, void (*)()> kPrograms;
const std::map<std::string, void (*)()> kPrograms = {
    {"grow", [] { hold(20 * kMiB); }},
    {"swing",
     [] {
         for (int i = 0; i < 3; i++)
             for (void *block : hold(20 * kMiB))
                 hak_free(block);
     }},
    {"slow",
     [] {
         for (int i = 0; i < 5; i++, std::this_thread::sleep_for(std::chrono::milliseconds(30)))
             hold(kBytes);
     }},
    {"threads",
     [] {
         std::vector<std::thread> threads;
         for (int i = 0; i < 4; i++)
             threads.emplace_back([] {
                 for (int j = 0; j < 10; j++)
                     for (void *block : hold(4 * kMiB))
                         hak_free(block);
             });
         for (auto &thread : threads)
             thread.join();
     }},
    {"signalled",
     [] {
         hold(kMiB);
         raise(SIGUSR1);
         hold(kMiB);
         raise(SIGUSR1);
         _exit(0);
     }},
    {"signalled_first", /* the signals come to the first process of a namespace */
     [] {
         pid_t child = fork();
         if (child == 0)
             kPrograms.at("signalled")();
         waitpid(child, nullptr, 0);
         _exit(0);
     }},
    {"arenas",
     [] {
         for (const char *name : {"ab", "bb", "b"}) {
             hak_arena_options options{};
             options.name = name;
             void *volatile block = hak_arena_malloc(hak_arena_new(&options), kBytes);
             (void)block;
         }
         hold(kBytes);
     }},
    {"terminated",
     [] {
         hold(kMiB);
         raise(SIGTERM);
     }},
    {"terminated_late",
     [] {
         hold(kMiB);
         terminated_late = true;
     }},
    {"handled",
     [] {
         hold(kMiB);
         signal(SIGTERM, [](int) { _exit(7); });
         raise(SIGTERM);
     }},
    {"without_stdin", [] { _exit(fcntl(0, F_GETFD) < 0 ? 0 : 5); }},
    {"closes",
     [] {
         hold(kMiB);
         for (int fd = 3; fd < 1024; fd++)
             close(fd);
         for (int fd = 200; fd < 220; fd++) /* as its own files, which it opened later */
             dup2(1, fd);
     }},
    {"opens_its_own",
     [] {
         hold(kMiB);
         for (int fd = 2; fd < 1024; fd++)
             close(fd);
         dup2(1, 2); /* what a daemon opens next */
     }},
    {"moved", [] { std::filesystem::current_path("/"); }},
    {"forks",
     [] {
         hold(kMiB);
         pid_t child = fork();
         if (child != 0)
             waitpid(child, nullptr, 0);
     }},
};

class Dumps : public testing::Test {
  protected:
    void SetUp() override {
        char pattern[] = "/tmp/hakmem-dumps-XXXXXX";
        ASSERT_NE(mkdtemp(pattern), nullptr);
        place_ = pattern;
    }
    void TearDown() override { std::filesystem::remove_all(place_); }

    Outcome run(const std::string &program, std::vector<std::string> environment, const std::string &name = "heap") {
        environment.insert(environment.begin(),
                           {"HAKMEM_PROFILE_FILE=" + place_ + "/" + name, "HAKMEM_PROFILE_BYTES=1000",
                            "HAKMEM_PROFILE_RATE=0", "HAKMEM_DUMP_PAUSE_MS=0"});
        Outcome outcome = run_self({"--program", program}, environment);
        EXPECT_EQ(outcome.err, "") << outcome.describe();
        return outcome;
    }

    /* The files' names, without the process's number, and the moments that they tell. */
    std::map<std::string, std::string> left(const Outcome &by) const {
        std::map<std::string, std::string> files;
        for (auto &entry : std::filesystem::directory_iterator(place_)) {
            std::string name = entry.path().filename(), number = "." + std::to_string(by.process), line, moment;
            size_t at = name.find(number);
            if (at != std::string::npos)
                name.replace(at, number.size(), ".PID");
            std::ifstream file(entry.path());
            for (std::string text; std::getline(file, line);)
                if (line.rfind("moment ", 0) == 0)
                    moment = line.substr(7);
            files[name] = moment;
        }
        return files;
    }

    std::string place_;
};

using Files = std::map<std::string, std::string>;

TEST_F(Dumps, OnGrowth) {
    Outcome grown = run("grow", {"HAKMEM_DUMP_GROWTH_BYTES=8m"});
    EXPECT_EQ(left(grown), (Files{{"heap.PID.1", "growth"}, {"heap.PID.2", "growth"}, {"heap.PID", "exit"}}));
}

TEST_F(Dumps, OnGrowthAgainAfterAFall) {
    Outcome swung = run("swing", {"HAKMEM_DUMP_GROWTH_BYTES=15m"}, "%n-%p");
    EXPECT_EQ(left(swung).size(), 4U);
}

TEST_F(Dumps, OnANewPeakAlone) {
    Files swung = left(run("swing", {"HAKMEM_DUMP_PEAK=1"})), grown = left(run("grow", {"HAKMEM_DUMP_PEAK=1"}));
    EXPECT_GE(grown.size(), 8U);
    EXPECT_EQ(swung["heap.PID.1"], "peak");
    EXPECT_LE(swung.size(), 20U) << "the second and third time is no peak";
}

TEST_F(Dumps, AtIntervals) {
    Files slow = left(run("slow", {"HAKMEM_DUMP_INTERVAL_MS=20"}));
    EXPECT_GE(slow.size(), 3U);
    EXPECT_EQ(slow["heap.PID.1"], "interval");
}

/* Else a dump overwrites another one, or is begun by two threads at once. */
TEST_F(Dumps, OfManyThreadsOneAtATime) {
    Files files = left(run("threads", {"HAKMEM_DUMP_GROWTH_BYTES=1m"}));
    EXPECT_GE(files.size(), 5U);
    for (size_t number = 1; number < files.size(); number++)
        EXPECT_EQ(files["heap.PID." + std::to_string(number)], "growth") << number;
}

TEST_F(Dumps, NoMoreThanAllowed) {
    Outcome bounded = run("grow", {"HAKMEM_DUMP_GROWTH_BYTES=1m", "HAKMEM_DUMP_BYTES=1"});
    EXPECT_EQ(left(bounded), (Files{{"heap.PID.1", "growth"}, {"heap.PID", "exit"}}));
    Files paused = left(run("grow", {"HAKMEM_DUMP_GROWTH_BYTES=1m", "HAKMEM_DUMP_PAUSE_MS=100000"}));
    EXPECT_EQ(paused.count("heap.PID.1"), 1U);
    EXPECT_EQ(paused.count("heap.PID.2"), 0U);
}

/* Else whoever names a file for the statistics alone gets none. */
TEST_F(Dumps, AFileForTheStatisticsIsEnough) {
    std::string setting = "HAKMEM_STATS_FILE=" + place_ + "/stats";
    EXPECT_EQ(left(run("grow", {"HAKMEM_PROFILE=0", "HAKMEM_STATS=0", setting})), Files{})
        << "switched off, yet written";
    EXPECT_EQ(left(run("grow", {setting})).count("stats.PID"), 1U);
}

TEST_F(Dumps, OnASignal) {
    Outcome signalled = run("signalled", {"HAKMEM_DUMP_SIGNAL=" + std::to_string(SIGUSR1), "HAKMEM_STATS=1",
                                          "HAKMEM_STATS_FILE=" + place_ + "/stats"});
    EXPECT_TRUE(signalled.exited(0)) << "the signal no longer ends the program";
    EXPECT_EQ(left(signalled), (Files{{"heap.PID", ""}, /* as that of the statistics */
                                      {"heap.PID.1", "signal"},
                                      {"heap.PID.2", "signal"},
                                      {"stats.PID", ""}, /* of the end, made at the start */
                                      {"stats.PID.1", ""},
                                      {"stats.PID.2", ""}}));
}

/* Else a container's program writes one and no more: 1 is a process's number like others. */
TEST_F(Dumps, OfTheFirstProcessOfANamespace) {
    Outcome made = run_self({"--program", "slow"}, {}, [](long) { _exit(unshare(CLONE_NEWUSER | CLONE_NEWPID)); });
    if (!made.exited(0))
        GTEST_SKIP() << "no namespaces";
    std::string setting = "HAKMEM_PROFILE_FILE=" + place_ + "/heap";
    Outcome signalled =
        run_self({"--program", "signalled_first"}, {setting, "HAKMEM_DUMP_SIGNAL=" + std::to_string(SIGUSR1)},
                 [](long) { unshare(CLONE_NEWUSER | CLONE_NEWPID); });
    Files files = left(signalled);
    EXPECT_EQ(files["heap.1.1"], "signal") << signalled.describe();
    EXPECT_EQ(files["heap.1.2"], "signal");
}

TEST_F(Dumps, OnSigtermIfTheProgramLeavesItAlone) {
    Outcome terminated = run("terminated", {});
    EXPECT_TRUE(terminated.killed(SIGTERM)) << terminated.describe();
    EXPECT_EQ(left(terminated), (Files{{"heap.PID", "SIGTERM"}}));
    Outcome handled = run("handled", {});
    EXPECT_TRUE(handled.exited(7)) << "the program's own handler runs";
    EXPECT_EQ(left(handled)["heap.PID"], "") << "written, though it ends by _exit";
}

/* Else what was written when the program ended is written once more, behind that or over it. */
TEST_F(Dumps, TheEndOfAProgramComesOnce) {
    Outcome terminated = run("terminated_late", {});
    EXPECT_TRUE(terminated.killed(SIGTERM)) << terminated.describe();
    EXPECT_EQ(left(terminated), (Files{{"heap.PID", "exit"}}));
}

/* Else `hakmem flame` takes a lifetime for a call, or shows stacks that allocated nothing. */
TEST_F(Dumps, AStackIsFiguresThenLifetimesThenCalls) {
    Outcome swung = run("swing", {});
    std::ifstream file(place_ + "/heap." + std::to_string(swung.process));
    Regex stack("stack [1-9][0-9]* [1-9][0-9]* [0-9]+ [0-9]+ [0-9]+(,[0-9]+){31}( 0x[0-9a-f]+)+");
    unsigned stacks = 0;
    for (std::string line; std::getline(file, line);)
        if (line.rfind("stack ", 0) == 0) {
            EXPECT_TRUE(stack.is_all_of(line)) << line;
            stacks++;
        }
    EXPECT_GT(stacks, 0U);
}

/* Else what one arena holds is shown as another's, or all the rest as that of an arena without a name. */
TEST_F(Dumps, AStackHasItsArenasName) {
    Outcome outcome = run("arenas", {});
    std::ifstream file(place_ + "/heap." + std::to_string(outcome.process));
    std::map<std::string, unsigned> names;
    for (std::string line; std::getline(file, line);)
        if (line.rfind("arena ", 0) == 0)
            names[line.substr(6)]++;
    EXPECT_EQ(names, (std::map<std::string, unsigned>{{"6162", 1}, {"6262", 1}, {"62", 1}}));
}

/* Else what belongs into them ends up in a file of the program's. */
TEST_F(Dumps, AProgramMayCloseTheFilesOfItsEnd) {
    Outcome closed = run("closes", {"HAKMEM_STATS_FILE=" + place_ + "/stats"});
    EXPECT_EQ(closed.out, "");
    EXPECT_EQ(left(closed), (Files{{"heap.PID", "exit"}, {"stats.PID", ""}})) << closed.describe();
    for (const char *name : {"/heap.", "/stats."})
        EXPECT_GT(std::filesystem::file_size(place_ + name + std::to_string(closed.process)), 0U) << name;
    closed = run_self({"--program", "closes"}, {"HAKMEM_STATS=1"});
    EXPECT_EQ(closed.out, "");
    EXPECT_NE(closed.err, "") << "the statistics";
}

/* Else the end of a daemon's database is statistics. */
TEST_F(Dumps, AProgramsOwnFileIsNoStandardError) {
    for (const char *file : {"", "/absent/file"}) {
        Outcome daemon =
            run_self({"--program", "opens_its_own"}, {"HAKMEM_STATS=1", std::string("HAKMEM_STATS_FILE=") + file});
        EXPECT_TRUE(daemon.exited(0)) << daemon.describe();
        EXPECT_EQ(daemon.out.find("resident"), std::string::npos) << daemon.out;
    }
}

/* Else a daemon's files lie in two places, and one of them where nobody looks. */
TEST_F(Dumps, LieWhereTheProgramStarted) {
    std::filesystem::path before = std::filesystem::current_path();
    std::filesystem::current_path(place_);
    Outcome moved = run_self({"--program", "moved"}, {"HAKMEM_PROFILE_FILE=heap", "HAKMEM_STATS_FILE=stats"});
    std::filesystem::current_path(before);
    EXPECT_EQ(left(moved), (Files{{"heap.PID", "exit"}, {"stats.PID", ""}})) << moved.describe();
}

/* Else a program that was started without one reads the file as its standard input, or closes it. */
TEST_F(Dumps, TakeNoDescriptorThatTheProgramMayUse) {
    Outcome outcome =
        run_self({"--program", "without_stdin"}, {"HAKMEM_STATS_FILE=" + place_ + "/stats"}, [](long) { close(0); });
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
    EXPECT_EQ(left(outcome), (Files{{"stats.PID", ""}}));
}

TEST_F(Dumps, OfEachProcessByItself) {
    Files forked = left(run("forks", {}));
    EXPECT_EQ(forked.size(), 2U);
    EXPECT_EQ(forked.count("heap.PID"), 1U);
}

TEST_F(Dumps, WhenTheProgramAsks) {
    std::string path = place_ + "/own-%p";
    EXPECT_EQ(hak_profile_dump(path.c_str()), 0);
    EXPECT_TRUE(std::filesystem::exists(place_ + "/own-" + std::to_string(getpid())));
    EXPECT_EQ(hak_profile_dump((place_ + "/absent/file").c_str()), EIO);
}

} // namespace

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "--program") == 0) {
        kPrograms.at(argv[2])();
        return 0;
    }
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
