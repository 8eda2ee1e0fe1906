/* HAKMEM_POLICY: the program does not know of it. If one of these fails, what was learned in one run is wrong in the
 * next.
 *
 * Each site calls through a pointer. First the pointer leads to who_calls, which notes the address to which the call
 * returns: so the test knows what a policy file has to name. The process is then run again with that file, and tells in
 * which lane each site's block lies, by a block of that lane beside it. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <hakmem.h>
#include <link.h>
#include <pthread.h>
#include <sys/mman.h>

#include <fstream>
#include <new>
#include <thread>

#include "../support.h"

namespace {

void *(*volatile allocate)(size_t);
uintptr_t noted;
__attribute__((noinline)) void *who_calls(size_t) {
    noted = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
    return nullptr;
}

/* The result is used after the call, so that the call is no jump. */
volatile char *used;
#define SITE(name, expression)                                                                                         \
    __attribute__((noinline)) void *name() {                                                                           \
        void *block = (expression);                                                                                    \
        used = static_cast<char *>(block);                                                                             \
        return block;                                                                                                  \
    }
SITE(plain, allocate(100))
SITE(other, allocate(100))
SITE(mid, allocate(5000))
SITE(huge, allocate(500000))
uintptr_t noted_of_wrapper;
__attribute__((noinline)) void *wrapper(size_t size) {
    void *block = allocate(size);
    noted_of_wrapper = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
    used = static_cast<char *>(block);
    return block;
}
SITE(wrapped, wrapper(100))
SITE(wrapped_too, wrapper(100))
/* A wrapper of wrappers: `n` frames more. */
uintptr_t noted_of_deep[4];
__attribute__((noinline)) void *deep(unsigned n, size_t size) {
    void *block = n == 0 ? allocate(size) : deep(n - 1, size);
    noted_of_deep[n] = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
    used = static_cast<char *>(block);
    return block;
}
SITE(far, deep(3, 100))
SITE(far_too, deep(3, 100))

#ifdef __x86_64__
/* A wrapper whose frame is as large as its caller says. The unwind table says 60,000 bytes, always. */
extern "C" {
void *allocate_below(size_t frame_bytes, void *(*allocate)(size_t), size_t size);
uintptr_t noted_of_below;
}
asm(R"(
    .text
    .type allocate_below, @function
    allocate_below:
    .cfi_startproc
    movq (%rsp), %rax
    movq %rax, noted_of_below(%rip)
    pushq %rbx
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset %rbx, 0
    movq %rdi, %rbx
    subq %rbx, %rsp
    .cfi_adjust_cfa_offset 60000
    movq %rdx, %rdi
    call *%rsi
    addq %rbx, %rsp
    .cfi_adjust_cfa_offset -60000
    popq %rbx
    .cfi_adjust_cfa_offset -8
    .cfi_restore %rbx
    ret
    .cfi_endproc
    .size allocate_below, . - allocate_below
)");
SITE(below, allocate_below(60000, allocate, 100))
#endif

struct Site {
    const char *name;
    void *(*call)();
};
const Site kSites[] = {{"plain", plain}, {"other", other},     {"mid", mid},
                       {"huge", huge},   {"wrapped", wrapped}, {"wrapped_too", wrapped_too},
                       {"far", far},     {"far_too", far_too}};

struct Way {
    const char *name;
    void *(*allocate)(size_t);
};
const Way kWays[] = {{"malloc", malloc},
                     {"new", static_cast<void *(*)(size_t)>(operator new)},
                     {"new[]", static_cast<void *(*)(size_t)>(operator new[])},
                     {"valloc", valloc}};

/* Lanes share no SuperSlab (2 MiB), and have one each here. */
uintptr_t superslab_of(const void *block) { return reinterpret_cast<uintptr_t>(block) >> 21; }
const char *lane_of(const void *block) {
    static const char *const names[] = {"default", "short-lived", "long-lived", "hot", "cold"};
    for (int policy = HAK_POLICY_LONG_LIVED; policy <= HAK_POLICY_COLD; policy++)
        if (superslab_of(hak_alloc_site(1, 0, policy)) == superslab_of(block))
            return names[policy];
    return names[0];
}

/* The child's part: prints values of tunables and options; sets those with a =. */
int tell_settings(const std::vector<std::string> &names) {
    for (auto &name : names) {
        char value[256] = "";
        size_t equals = name.find('=');
        if (equals != std::string::npos) {
            hak_option_set(name.substr(0, equals).c_str(), name.c_str() + equals + 1);
            continue;
        }
        hak_option_get(name.c_str(), value, sizeof value);
        printf("%s\n", value);
    }
    return 0;
}

/* The child's part: prints where the sites' blocks lie. */
int tell_lanes(const std::string &way) {
    for (auto &one : kWays)
        if (way == one.name)
            allocate = one.allocate;
    for (auto &site : kSites)
        printf("%s: %s\n", site.name, lane_of(site.call()));
    std::thread([] {
        plain(); /* the first one makes the thread's heap */
        printf("in a thread: %s\n", lane_of(plain()));
    }).join();
    void *grown = realloc(plain(), 3000);
    printf("grown: %s\n", lane_of(grown));
    return 0;
}

/* The child's part: calloc gets memory to which the users of freed blocks have written. */
int check_zeroes() {
    for (size_t size : {100, 5000, 60000, 200000}) {
        free(memset(malloc(size), 1, size));
        char *block = static_cast<char *>(calloc(1, size));
        if (size_t at = first_dirty(block, size); at != size)
            printf("byte %zu of %zu is not zero\n", at, size);
    }
    return 0;
}

/* The child's part: sites whose lane has no more memory, and then the heap has none. */
int exhaust() {
    alarm(kChildSeconds);
    allocate = malloc;
    for (auto *site : {mid, plain}) {
        errno = 0;
        while (site() != nullptr)
            continue;
        puts(errno == ENOMEM ? "ENOMEM" : "another error");
    }
    return 0;
}

#ifdef __x86_64__
/* The child's part: the wrapper's frame is smaller all at once, in a thread above whose stack nothing can be read. */
int call_where_another_was() {
    constexpr size_t kStack = 256 * kKiB, kAbove = 128 * kKiB;
    allocate = malloc;
    below();
    printf("below: %s\n", lane_of(below()));
    void *memory = mmap(nullptr, kStack + kAbove, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, kStack, PROT_READ | PROT_WRITE) != 0)
        return 1;
    pthread_attr_t on_this_stack;
    pthread_attr_init(&on_this_stack);
    pthread_attr_setstack(&on_this_stack, memory, kStack);
    auto run = [](void *) -> void * {
        plain(); /* the first one makes the thread's heap */
        return allocate_below(0, malloc, 100);
    };
    pthread_t thread;
    void *block = nullptr;
    if (pthread_create(&thread, &on_this_stack, run, nullptr) != 0 || pthread_join(thread, &block) != 0)
        return 1;
    printf("elsewhere: %s\n", lane_of(block));
    return 0;
}
#endif

/* The part of this program that a line names. */
struct Module {
    uintptr_t base = 0;
    std::string build_id;
};
Module this_module() {
    Module found;
    dl_iterate_phdr(
        [](dl_phdr_info *info, size_t, void *result) {
            auto *module = static_cast<Module *>(result);
            module->base = info->dlpi_addr;
            for (int i = 0; i < info->dlpi_phnum; i++) {
                if (info->dlpi_phdr[i].p_type != PT_NOTE)
                    continue;
                auto *at = reinterpret_cast<const char *>(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
                auto *end = at + info->dlpi_phdr[i].p_memsz;
                while (at < end) {
                    auto *note = reinterpret_cast<const ElfW(Nhdr) *>(at);
                    auto *id =
                        reinterpret_cast<const unsigned char *>(at + sizeof *note + (note->n_namesz + 3) / 4 * 4);
                    for (unsigned n = 0; note->n_type == NT_GNU_BUILD_ID && n < note->n_descsz; n++) {
                        char digits[3];
                        snprintf(digits, sizeof digits, "%02x", id[n]);
                        module->build_id += digits;
                    }
                    at = reinterpret_cast<const char *>(id) + (note->n_descsz + 3) / 4 * 4;
                }
            }
            return 1; /* the first one is the program */
        },
        &found);
    return found;
}

std::string place_of(uintptr_t address) {
    char text[24];
    Module module = this_module();
    snprintf(text, sizeof text, "+0x%zx", address - module.base);
    return module.build_id + text;
}
std::string noted_by(void *(*site)()) {
    allocate = who_calls;
    site();
    return place_of(noted);
}

class Policy : public testing::Test {
  protected:
    Policy() : path_("/tmp/hakmem-policy-test-" + std::to_string(getpid())) {}
    ~Policy() override { unlink(path_.c_str()); }
    void write(const std::string &text) const { std::ofstream(path_) << text; }
    Outcome run(const std::string &way, const std::vector<std::string> &env = {}) const {
        std::vector<std::string> all = {"HAKMEM_POLICY=" + path_};
        all.insert(all.end(), env.begin(), env.end());
        return run_self({"--lanes", way}, all);
    }
    Outcome values(const std::vector<std::string> &names, const std::vector<std::string> &env = {}) const {
        std::vector<std::string> arguments = {"--settings"}, all = {"HAKMEM_POLICY=" + path_};
        arguments.insert(arguments.end(), names.begin(), names.end());
        all.insert(all.end(), env.begin(), env.end());
        return run_self(arguments, all);
    }
    std::string path_;
};

TEST_F(Policy, PlacesBlocksByWhoCallsMalloc) {
    std::string in_wrapper = noted_by(wrapped), in_wrapped = place_of(noted_of_wrapper), in_far = noted_by(far);
    for (uintptr_t address : noted_of_deep)
        in_far += " " + place_of(address);
    write("hakmem policy 1\n# a comment\n\nlong-lived " + noted_by(plain) + " # plain\n  cold\t" + noted_by(mid) +
          "\nlong-lived " + noted_by(huge) + "\nhot " + in_wrapper + " " + in_wrapped + "\ncold " + in_far + "\n");
    Outcome outcome = run("malloc");
    ASSERT_TRUE(outcome.exited(0)) << outcome.describe();
    EXPECT_EQ(outcome.err, "");
    EXPECT_EQ(outcome.out,
              "plain: long-lived\nother: default\nmid: cold\nhuge: default\nwrapped: hot\n"
              "wrapped_too: default\nfar: cold\nfar_too: default\nin a thread: long-lived\ngrown: long-lived\n");
}

TEST_F(Policy, KnowsWhoCallsTheOtherFunctionsThatAllocate) {
    write("hakmem policy 1\nlong-lived " + noted_by(plain) + "\n");
    for (auto &way : kWays) {
        Outcome outcome = run(way.name);
        ASSERT_TRUE(outcome.exited(0)) << outcome.describe();
        EXPECT_EQ(lines_of(outcome.out)[0], "plain: long-lived") << way.name;
        EXPECT_EQ(lines_of(outcome.out)[1], "other: default") << way.name;
    }
}

/* A line of more frames is an exception to one of fewer. What has no lane is the heap's. */
TEST_F(Policy, MayLeaveASiteAsItIs) {
    std::string in_wrapper = noted_by(wrapped), in_wrapped = place_of(noted_of_wrapper);
    write("hakmem policy 1\nshort-lived " + noted_by(plain) + "\ndefault " + noted_by(mid) + "\nhot " + in_wrapper +
          "\ndefault " + in_wrapper + " " + in_wrapped + "\n");
    Outcome outcome = run("malloc");
    ASSERT_TRUE(outcome.exited(0)) << outcome.describe();
    EXPECT_EQ(outcome.err, "");
    EXPECT_EQ(outcome.out, "plain: default\nother: default\nmid: default\nhuge: default\nwrapped: default\n"
                           "wrapped_too: hot\nfar: default\nfar_too: default\nin a thread: default\n"
                           "grown: default\n");
}

TEST_F(Policy, CallocClearsWhateverItsSiteGets) {
    write("hakmem policy 1\nlong-lived " + noted_by(plain) + "\n");
    Outcome outcome = run_self({"--zeroes"}, {"HAKMEM_POLICY=" + path_});
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
    EXPECT_EQ(outcome.out, "");
}

/* Else the program hangs in malloc. */
TEST_F(Policy, SitesComeToTheEndOfMemory) {
    write("hakmem policy 1\nlong-lived " + noted_by(plain) + "\ncold " + noted_by(mid) + "\n");
    Outcome outcome = run_self({"--exhaust"}, {"HAKMEM_POLICY=" + path_, "HAKMEM_HARD_LIMIT=32m"});
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
    EXPECT_EQ(outcome.out, "ENOMEM\nENOMEM\n");
}

#ifdef __x86_64__
/* As after dlclose, when another library's code lies where the wrapper's was. */
TEST_F(Policy, ReadsNoFurtherThanTheStack) {
    std::string in_below = noted_by(below);
    write("hakmem policy 1\nhot " + in_below + " " + place_of(noted_of_below) + "\n");
    Outcome outcome = run_self({"--elsewhere"}, {"HAKMEM_POLICY=" + path_});
    ASSERT_TRUE(outcome.exited(0)) << outcome.describe();
    EXPECT_EQ(outcome.out, "below: hot\nelsewhere: default\n");
}
#endif

TEST_F(Policy, HasNoEffectInSecureMode) {
    write("hakmem policy 1\nlong-lived " + noted_by(plain) + "\n");
    Outcome outcome = run("malloc", {"HAKMEM_SECURE=1", "HAKMEM_STATS=json"});
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
    EXPECT_NE(outcome.err.find("\"arenas\":[]"), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.err.find("hakmem:"), std::string::npos) << outcome.err;
}

TEST_F(Policy, SetsTunablesAndOptions) {
    write("hakmem policy 1\nset ring_blocks:8000=64 # why\n set\towned_slabs=3\nset PURGE=lazy\nset RING_BYTES=2m\n");
    const std::vector<std::string> names = {"ring_blocks", "owned_slabs", "PURGE", "RING_BYTES"};
    Outcome outcome = values(names);
    EXPECT_EQ(outcome.err, "");
    EXPECT_EQ(outcome.out, "1024,8192:64\n3\nlazy\n2097152\n");
    outcome = values(names, {"HAKMEM_TUNE=ring_blocks=7", "HAKMEM_RING_BYTES=4m"});
    EXPECT_EQ(outcome.out, "7\n3\nlazy\n4194304\n") << "what the environment says counts, even if that is the default";
}

/* A preset changes its options as one. */
TEST_F(Policy, GoesWithThePresetThatTheEnvironmentNames) {
    write("hakmem policy 1\nset RETAIN_BYTES=3000\n");
    Outcome outcome = values({"PURGE", "RETAIN_BYTES", "DECAY_MS"}, {"HAKMEM_PRESET=throughput"});
    EXPECT_EQ(outcome.out, "lazy\n3000\n60000\n") << outcome.describe();
}

/* The table of docs/options.md, from the last row up: each row counts more than those below it. */
TEST_F(Policy, CountsMoreThanWhatTheProgramSaysAndLessThanTheEnvironment) {
    write("hakmem policy 1\n");
    std::vector<std::string> env = {};
    auto is = [&](const std::string &name, const char *value, const std::string &set = "OWN=1") {
        Outcome outcome = values({set, name}, env);
        EXPECT_EQ(outcome.out, value + std::string("\n")) << name << outcome.describe();
    };
    is("RETAIN_BYTES", "1048576");
    is("loan_from_frees", "16384");
    env = {"HAKMEM_PRESET=bursty"};
    is("RETAIN_BYTES", "33554432");
    is("RETAIN_PERCENT", "5"); /* hak_options below */
    env.emplace_back("MALLOC_TRIM_THRESHOLD_=2000");
    is("RETAIN_BYTES", "2000");
    write("hakmem policy 1\nset RETAIN_BYTES=3000\nset RETAIN_PERCENT=3\nset loan_from_frees=300\n");
    is("RETAIN_BYTES", "3000");
    is("RETAIN_PERCENT", "3");
    is("loan_from_frees", "300");
    for (const char *variable :
         {"HAKMEM_RETAIN_BYTES=4000", "HAKMEM_RETAIN_PERCENT=4", "HAKMEM_TUNE=loan_from_frees=400"})
        env.emplace_back(variable);
    is("RETAIN_BYTES", "4000");
    is("RETAIN_PERCENT", "4");
    is("loan_from_frees", "400");
    is("RETAIN_BYTES", "5000", "RETAIN_BYTES=5000");
    is("loan_from_frees", "500", "loan_from_frees=500");
}

/* Pieces of good lines in any order, cut anywhere. */
TEST_F(Policy, TakesAnyFileOrSaysInOneLineWhatIsWrong) {
    const std::string site = noted_by(plain);
    const std::vector<std::string> pieces = {"set ",
                                             "set\t",
                                             "owned_slabs=",
                                             "ring_blocks:8000=",
                                             "ring_blocks:",
                                             "PURGE=",
                                             "lazy",
                                             "64",
                                             "=",
                                             "RING_BYTES=2m",
                                             "ring_blocks=16",
                                             "SECURE=1",
                                             "POLICY=x",
                                             "# a\n",
                                             "\n",
                                             "\n\n",
                                             " ",
                                             "\r",
                                             "long-lived ",
                                             "cold ",
                                             site,
                                             "+0x",
                                             "set",
                                             std::string(300, 'x'),
                                             "18446744073709551616",
                                             "-1",
                                             std::string(1, '\0'),
                                             "=\n",
                                             "hot " + site + "\n",
                                             "set ring_spills=2\n"};
    std::string begin = "hakmem: HAKMEM_POLICY=" + path_ + " has no effect: line ";
    int bad = 0, good = 0;
    for (int i = 0; i < times(200); i++) {
        Random random(i);
        std::string text = "hakmem policy 1\n";
        for (unsigned n = random.below(8); n != 0; n--)
            text += pieces[random.below(pieces.size())];
        write(random.below(4) == 0 ? text.substr(0, random.below(text.size() + 1)) : text + "\n");
        Outcome outcome = values({"owned_slabs"});
        ASSERT_TRUE(outcome.exited(0)) << text << outcome.describe();
        good += outcome.err.empty();
        bad += !outcome.err.empty();
        if (outcome.err.empty())
            continue;
        EXPECT_EQ(outcome.err.substr(0, begin.size()), begin) << text;
        EXPECT_EQ(lines_of(outcome.err).size(), 1u) << text;
        EXPECT_EQ(outcome.out, "16\n") << text;
    }
    EXPECT_GT(good, 0);
    EXPECT_GT(bad, 0);
}

TEST_F(Policy, WithABadLineIsReportedAndHasNoEffect) {
    std::string good = "long-lived " + noted_by(plain) + "\n", many, frames = good.substr(0, good.size() - 1);
    for (int i = 0; i < 4097; i++)
        many += good;
    const std::string long_line(100000, ' ');
    const std::pair<std::string, const char *> files[] = {
        {"", nullptr},
        {"hakmem policy 2\n" + good, "line 1 is not \"hakmem policy 1\""},
        {"hakmem policy 1\n" + good + "lively 0123456789abcdef+0x1\n",
         "line 3 is no policy, such as long-lived, and no setting"},
        {"hakmem policy 1\n" + good + "hot\n", "line 3 is without a call site"},
        {"hakmem policy 1\n" + good + "set\n", "line 3 is no policy, such as long-lived, and no setting"},
        {"hakmem policy 1\n" + good + "set carve=1\n", "line 3 is no setting: there is no such option or tunable"},
        {"hakmem policy 1\n" + good + "set carve_bytes=1\n", "line 3 is no setting: the value does not fit"},
        {"hakmem policy 1\n" + good + "set PURGE=often\n", "line 3 is no setting: the value does not fit"},
        {"hakmem policy 1\n" + good + "set PURGE=lazy x\n", "line 3 is longer than one setting"},
        {"hakmem policy 1\n" + good + "set SECURE=1\n",
         "line 3 is no setting for a file: the environment sets this option"},
        {"hakmem policy 1\nhot 0123456789abcdef\n", "line 2 is not BUILDID+0xOFFSET"},
        {"hakmem policy 1\nhot 0123+0x10\n", "line 2 is not BUILDID+0xOFFSET"},
        {"hakmem policy 1\nhot 0123456789abcdef+0x\n", "line 2 is not BUILDID+0xOFFSET"},
        {"hakmem policy 1\nhot 0123456789abcdef+0x1x\n", "line 2 is not BUILDID+0xOFFSET"},
        {"hakmem policy 1\n" + frames + frames.substr(10) + frames.substr(10) + frames.substr(10) + frames.substr(10) +
             frames.substr(10) + "\n",
         "line 2 is longer than five frames"},
        {"hakmem policy 1\n" + many, "line 4098 is one line too many"},
        {"hakmem policy 1\n" + long_line + "\n" + good, "line 2 is too long"},
        {"hakmem policy 1\n" + good + "hot", "line 3 is without an end"},
    };
    for (auto &[text, error] : files) {
        write(text);
        Outcome outcome = run("malloc");
        EXPECT_EQ(lines_of(outcome.out)[0], "plain: default") << text.substr(0, 200);
        EXPECT_EQ(outcome.err,
                  error != nullptr ? "hakmem: HAKMEM_POLICY=" + path_ + " has no effect: " + error + "\n" : "")
            << text.substr(0, 200);
    }
    unlink(path_.c_str());
    EXPECT_EQ(run("malloc").err, "hakmem: HAKMEM_POLICY=" + path_ + " cannot be read\n");
}

} // namespace

extern "C" {
extern const char *hak_options;
const char *hak_options = "RETAIN_PERCENT=5";
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "--lanes") == 0)
        return tell_lanes(argv[2]);
    if (argc == 2 && strcmp(argv[1], "--zeroes") == 0)
        return check_zeroes();
    if (argc == 2 && strcmp(argv[1], "--exhaust") == 0)
        return exhaust();
#ifdef __x86_64__
    if (argc == 2 && strcmp(argv[1], "--elsewhere") == 0)
        return call_where_another_was();
#endif
    if (argc > 2 && strcmp(argv[1], "--settings") == 0)
        return tell_settings({argv + 2, argv + argc});
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
