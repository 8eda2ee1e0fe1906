/* The probes (probes.h), as a tracer finds them: by the library's ELF notes. If it fails, OpenTelemetry's profiler sees
 * no allocations of programs that run under HAKMEM, or reads garbage. */
/* SPDX-License-Identifier: MIT */
#include <elf.h>
#include <gtest/gtest.h>
#include <hakmem.h>
#include <link.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <fstream>
#include <iterator>
#include <map>

#include "../heap_stats.h"
#include "../support.h"
#include "inside.h"

namespace {

#if defined(__x86_64__)
const char *const kArguments[] = {"8@%rdi 8@%rsi 8@%rdx", "8@%rdi"};
const std::string kNop = "\x90", kBreakpoint = "\xcc";
#else
const char *const kArguments[] = {"8@x0 8@x1 8@x2", "8@x0"};
const std::string kNop = "\x1f\x20\x03\xd5", kBreakpoint(std::string("\0\0\x20\xd4", 4));
#endif

struct Probe {
    uint64_t place, semaphore; /* as in the file, before relocation */
    std::string arguments;
};

/* An ELF file and its probes. */
class File {
  public:
    explicit File(const char *path) {
        std::ifstream stream(path, std::ios::binary);
        bytes_.assign(std::istreambuf_iterator<char>(stream), {});
        auto header = at<ElfW(Ehdr)>(0);
        for (unsigned i = 0; i < header.e_phnum; i++)
            segments_.push_back(at<ElfW(Phdr)>(header.e_phoff + i * sizeof(ElfW(Phdr))));
        std::vector<ElfW(Shdr)> sections;
        for (unsigned i = 0; i < header.e_shnum; i++)
            sections.push_back(at<ElfW(Shdr)>(header.e_shoff + i * sizeof(ElfW(Shdr))));
        for (auto &section : sections) {
            std::string name = &bytes_[sections[header.e_shstrndx].sh_offset + section.sh_name];
            if (name == ".stapsdt.base")
                base_ = section.sh_addr;
            if (name == ".note.stapsdt")
                read_notes(section.sh_offset, section.sh_offset + section.sh_size);
        }
        for (auto &[name, probe] : probes_) /* in case the file was moved after it was linked */
            probe.place += base_ - note_base_, probe.semaphore += base_ - note_base_;
    }
    const std::multimap<std::string, Probe> &probes() const { return probes_; }
    /* The loaded segment that contains this address and has it in the file. */
    const ElfW(Phdr) * segment(uint64_t address) const {
        for (auto &one : segments_)
            if (one.p_type == PT_LOAD && address - one.p_vaddr < one.p_filesz)
                return &one;
        return nullptr;
    }
    std::string content(uint64_t address, size_t n) const {
        auto *one = segment(address);
        return one == nullptr ? "" : bytes_.substr(address - one->p_vaddr + one->p_offset, n);
    }

  private:
    template <class T> T at(size_t offset) const {
        T value{};
        if (offset + sizeof value <= bytes_.size())
            memcpy(&value, &bytes_[offset], sizeof value);
        return value;
    }
    void read_notes(size_t from, size_t end) {
        while (from < end) {
            auto note = at<ElfW(Nhdr)>(from);
            size_t text = from + sizeof note + ((note.n_namesz + 3) & ~3u);
            EXPECT_STREQ(&bytes_[from + sizeof note], "stapsdt");
            EXPECT_EQ(note.n_type, 3u);
            from = text + ((note.n_descsz + 3) & ~3u);
            note_base_ = at<uint64_t>(text + 8);
            Probe probe{at<uint64_t>(text), at<uint64_t>(text + 16), ""};
            std::string provider = &bytes_[text += 24];
            std::string name = &bytes_[text += provider.size() + 1];
            probe.arguments = &bytes_[text + name.size() + 1];
            probes_.emplace(provider + ":" + name, probe);
        }
    }

    std::string bytes_;
    std::vector<ElfW(Phdr)> segments_;
    uint64_t base_ = 0, note_base_ = 0;
    std::multimap<std::string, Probe> probes_;
};

void expect_probes(const char *path) {
    SCOPED_TRACE(path);
    File file(path);
    int i = 0;
    for (const char *name : {"otel_memory:alloc", "otel_memory:free"}) {
        SCOPED_TRACE(name);
        ASSERT_EQ(file.probes().count(name), 1u);
        const Probe &probe = file.probes().find(name)->second;
        EXPECT_EQ(probe.arguments, kArguments[i++]);
        auto *code = file.segment(probe.place), *semaphore = file.segment(probe.semaphore);
        ASSERT_NE(code, nullptr);
        EXPECT_TRUE(code->p_flags & PF_X);
        EXPECT_EQ(file.content(probe.place, kNop.size()), kNop);
        ASSERT_NE(semaphore, nullptr) << "the kernel counts in the file's pages only";
        EXPECT_TRUE(semaphore->p_flags & PF_W);
        EXPECT_EQ(probe.semaphore % 2, 0u);
        EXPECT_EQ(file.content(probe.semaphore, 2), std::string(2, '\0'));
    }
}

TEST(Probes, InTheNotesOfTheLibrary) {
#ifdef HAK_TEST_LIBRARY
    expect_probes(HAK_TEST_LIBRARY);
#else
    GTEST_SKIP() << "this build has no library with the standard symbols";
#endif
}
TEST(Probes, InTheNotesOfAProgramLinkedWithIt) { expect_probes("/proc/self/exe"); }

/* ---- a tracer in this process ---- */

struct Hit {
    uintptr_t place, arguments[3];
};
Hit hits[8];
volatile sig_atomic_t hit_count;

void on_breakpoint(int, siginfo_t *, void *context) {
    auto &machine = static_cast<ucontext_t *>(context)->uc_mcontext;
#if defined(__x86_64__)
    auto *r = machine.gregs;
    auto word = [&](int number) { return static_cast<uintptr_t>(r[number]); };
    hits[hit_count % 8] = {word(REG_RIP) - 1, {word(REG_RDI), word(REG_RSI), word(REG_RDX)}};
#else
    hits[hit_count % 8] = {machine.pc, {machine.regs[0], machine.regs[1], machine.regs[2]}};
    machine.pc += 4;
#endif
    hit_count = hit_count + 1;
}

/* Puts a breakpoint at a probe and raises its semaphore, as the kernel does for a tracer. */
class Tracer {
  public:
    Tracer(const File &file, const char *name) {
        auto &probe = file.probes().find(name)->second;
        dl_iterate_phdr(
            [](dl_phdr_info *info, size_t, void *base) {
                *static_cast<uintptr_t *>(base) = info->dlpi_addr; /* the first module is the program */
                return 1;
            },
            &base_);
        place_ = probe.place + base_;
        semaphore_ = reinterpret_cast<volatile unsigned short *>(probe.semaphore + base_);
        write(kBreakpoint);
        *semaphore_ = *semaphore_ + 1;
    }
    ~Tracer() {
        *semaphore_ = *semaphore_ - 1;
        write(kNop);
    }
    uintptr_t place() const { return place_; }
    volatile unsigned short &semaphore() { return *semaphore_; }

  private:
    void write(const std::string &code) {
        auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
        auto *begin = reinterpret_cast<void *>(place_ & ~(page - 1));
        EXPECT_EQ(mprotect(begin, page, PROT_READ | PROT_WRITE | PROT_EXEC), 0);
        memcpy(reinterpret_cast<void *>(place_), code.data(), code.size());
        __builtin___clear_cache(reinterpret_cast<char *>(place_), reinterpret_cast<char *>(place_) + 4);
        EXPECT_EQ(mprotect(begin, page, PROT_READ | PROT_EXEC), 0);
    }
    uintptr_t base_ = 0, place_;
    volatile unsigned short *semaphore_;
};

TEST(Probes, ATracerGetsTheArguments) {
    File file("/proc/self/exe");
    struct sigaction action = {}, before;
    action.sa_sigaction = on_breakpoint;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGTRAP, &action, &before);
    char block;
    auto address = reinterpret_cast<uintptr_t>(&block);
    hit_count = 0;
    EXPECT_FALSE(inside_probe_alloc_wanted());
    {
        Tracer tracer(file, "otel_memory:alloc");
        EXPECT_TRUE(inside_probe_alloc_wanted());
        inside_probe_alloc(&block, 48, 524289);
        inside_probe_free(&block); /* no tracer listens */
        ASSERT_EQ(hit_count, 1);
        EXPECT_EQ(hits[0].place, tracer.place());
        EXPECT_EQ(hits[0].arguments[0], address);
        EXPECT_EQ(hits[0].arguments[1], 48u);
        EXPECT_EQ(hits[0].arguments[2], 524289u);
        tracer.semaphore() = 0;
        inside_probe_alloc(&block, 48, 524289);
        EXPECT_EQ(hit_count, 1) << "it is told though nobody listens";
        tracer.semaphore() = 1;
    }
    EXPECT_FALSE(inside_probe_alloc_wanted());
    {
        Tracer tracer(file, "otel_memory:free");
        EXPECT_FALSE(inside_probe_alloc_wanted()) << "who listens to frees does not listen to allocations";
        inside_probe_free(&block);
        inside_probe_alloc(&block, 48, 524289);
        ASSERT_EQ(hit_count, 2);
        EXPECT_EQ(hits[1].place, tracer.place());
        EXPECT_EQ(hits[1].arguments[0], address);
    }
    sigaction(SIGTRAP, &before, nullptr);
}

/* Else an attached bpftrace script sees nothing until somebody switches the profile on. */
TEST(Probes, ATracerStartsSampling) {
    File file("/proc/self/exe");
    struct sigaction action = {}, before;
    action.sa_sigaction = on_breakpoint;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGTRAP, &action, &before);
    auto hits_of = [](size_t mebibytes) {
        hit_count = 0;
        for (size_t i = 0; i < mebibytes * 1024; i++) /* of two kinds */
            hak_free(hidden(hak_malloc(i % 2 == 0 ? 48 : 1976)));
        return hit_count;
    };
    EXPECT_EQ(hits_of(32), 0);
    hak_option_set("PROFILE_RATE", "0");
    {
        Tracer tracer(file, "otel_memory:alloc");
        EXPECT_GT(hits_of(256), 5)
            << "of 65,536 frees of a size at least one is no hit of the free path; about 40 are expected";
        hak_profile_start(64 << 10);
        EXPECT_GT(hits_of(32), 200) << "a profile's own interval counts; 512 are expected";
        hak_profile_stop();
        EXPECT_GT(hits_of(256), 5) << "the tracer is still there";
    }
    hits_of(256); /* until the heap notices */
    EXPECT_EQ(hits_of(32), 0) << "it has gone";
    sigaction(SIGTRAP, &before, nullptr);
}

/* Else a program that allocates blocks of one size, above 1 KiB, and frees them at once is never sampled: none of its
 * calls is on a slow path. */
TEST(Probes, ATracerStartsSamplingWhereEveryCallIsAHitOfARing) {
    File file("/proc/self/exe");
    struct sigaction action = {}, before;
    action.sa_sigaction = on_breakpoint;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGTRAP, &action, &before);
    auto hits_of = [](size_t blocks) {
        hit_count = 0;
        while (blocks-- != 0)
            hak_free(hidden(hak_malloc(3000)));
        return hit_count;
    };
    EXPECT_EQ(hits_of(1000), 0);
    hak_option_set("PROFILE_RATE", "0");
    EXPECT_EQ(hits_of(1000), 0) << "and the option is no news any more";
    {
        Tracer tracer(file, "otel_memory:alloc");
        EXPECT_GT(hits_of(10000), 5) << "about 57 are expected";
    }
    EXPECT_LE(hits_of(10000), 1);
    EXPECT_EQ(hits_of(10000), 0);
    sigaction(SIGTRAP, &before, nullptr);
}

/* The same of guard pages that another process asks for. */
TEST(Probes, GuardPagesStartWhereEveryCallIsAHitOfARing) {
    auto guarded_of = [](size_t blocks) {
        long guarded = counter("guard_sampled");
        while (blocks-- != 0)
            hak_free(hidden(hak_malloc(3000)));
        return counter("guard_sampled") - guarded;
    };
    EXPECT_EQ(guarded_of(1000), 0);
    ASSERT_EQ(inside_option_write("GUARD_SAMPLE_BYTES", "64k"), 0);
    inside_ask();
    EXPECT_GT(guarded_of(10000), 50) << "about 450 are expected";
    ASSERT_EQ(inside_option_write("GUARD_SAMPLE_BYTES", "0"), 0);
    inside_ask();
    EXPECT_LE(guarded_of(10000), 1);
}

} // namespace
