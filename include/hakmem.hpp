/* HAKMEM for C++17: an arena that ends with its owner, containers whose elements lie in an arena or in the process's
 * heap, and sites, which say how long blocks will live.
 *
 *     hakmem::unique_arena arena = hakmem::make_arena({"requests", 64 << 20, nullptr, nullptr});
 *     hakmem::memory_resource resource(arena.get());
 *     std::pmr::vector<std::pmr::string> words(&resource);
 *     std::vector<int, hakmem::allocator<int>> numbers(arena.get());
 *
 *     static const hakmem::site cached("cached pages", HAK_POLICY_LONG_LIVED);
 *     std::map<int, page, std::less<>, hakmem::site_allocator<std::pair<const int, page>>> pages{cached};
 *
 * The arena must outlive the containers, and what they hand out. All else is as hakmem.h says: any thread may use any
 * arena. */
/* SPDX-License-Identifier: MIT */
#ifndef HAKMEM_HPP
#define HAKMEM_HPP

#include "hakmem.h"

#include <cerrno>
#include <cstddef>
#include <memory>
#include <memory_resource>
#include <new>
#include <stdexcept>
#include <type_traits>

namespace hakmem {

namespace detail {
inline void *allocate(hak_arena *arena, std::size_t bytes, std::size_t alignment) {
    void *block;
    if (alignment <= alignof(std::max_align_t))
        block = arena != nullptr ? hak_arena_malloc(arena, bytes) : hak_malloc(bytes);
    else
        block =
            arena != nullptr ? hak_arena_aligned_alloc(arena, alignment, bytes) : hak_aligned_alloc(alignment, bytes);
    if (block == nullptr)
        throw std::bad_alloc();
    return block;
}
} // namespace detail

/* An arena that is destroyed with its owner, its blocks with it. release() gives up the ownership; hak_arena_release
 * would then keep the blocks. */
struct arena_destroyer {
    void operator()(hak_arena *arena) const noexcept { hak_arena_destroy(arena); }
};
using unique_arena = std::unique_ptr<hak_arena, arena_destroyer>;

/* Throws std::bad_alloc if there is no memory for an arena. */
inline unique_arena make_arena(const hak_arena_options &options = {}) {
    unique_arena arena(hak_arena_new(&options));
    if (arena == nullptr)
        throw std::bad_alloc();
    return arena;
}

/* For the containers of std::pmr. nullptr: the process's heap. Two resources are equal if they have the same arena, so
 * that no container takes over elements that another arena ends with. */
class memory_resource final : public std::pmr::memory_resource {
  public:
    explicit memory_resource(hak_arena *arena = nullptr) noexcept : arena_(arena) {}
    hak_arena *arena() const noexcept { return arena_; }

  private:
    void *do_allocate(std::size_t bytes, std::size_t alignment) override {
        return detail::allocate(arena_, bytes, alignment);
    }
    void do_deallocate(void *block, std::size_t, std::size_t) override { hak_free(block); }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override {
        auto *same = dynamic_cast<const memory_resource *>(&other);
        return same != nullptr && same->arena_ == arena_;
    }
    hak_arena *arena_;
};

/* For the containers of std. nullptr: the process's heap. Moves and swaps of containers take the arena along, copies
 * too. */
template <class T> class allocator {
  public:
    using value_type = T;
    using propagate_on_container_move_assignment = std::true_type;
    using propagate_on_container_swap = std::true_type;
    using is_always_equal = std::false_type;

    allocator(hak_arena *arena = nullptr) noexcept : arena_(arena) {} // NOLINT: a container takes a handle
    template <class U> allocator(const allocator<U> &other) noexcept : arena_(other.arena()) {} // NOLINT: likewise
    hak_arena *arena() const noexcept { return arena_; }

    T *allocate(std::size_t count) {
        if (count > static_cast<std::size_t>(-1) / sizeof(T))
            throw std::bad_array_new_length();
        return static_cast<T *>(detail::allocate(arena_, count * sizeof(T), alignof(T)));
    }
    void deallocate(T *block, std::size_t) noexcept { hak_free(block); }

    template <class U> bool operator==(const allocator<U> &other) const noexcept { return arena_ == other.arena(); }
    template <class U> bool operator!=(const allocator<U> &other) const noexcept { return arena_ != other.arena(); }

  private:
    hak_arena *arena_;
};

/* A place of the program's code, made once: see hak_site_new. Throws std::invalid_argument for an unknown policy,
 * std::bad_alloc if there are too many sites. */
class site {
  public:
    site(const char *name, int policy) : number_(hak_site_new(name, policy)) {
        if (number_ == 0 && errno == EINVAL)
            throw std::invalid_argument("hakmem::site: bad name or policy");
        if (number_ == 0)
            throw std::bad_alloc();
    }
    unsigned number() const noexcept { return number_; }
    /* A block for hak_free. Throws std::bad_alloc. */
    void *allocate(std::size_t bytes) const {
        void *block = hak_alloc_site(bytes, number_, HAK_POLICY_DEFAULT);
        if (block == nullptr)
            throw std::bad_alloc();
        return block;
    }

  private:
    unsigned number_;
};

/* For the containers of std: their elements are allocated as the site says. Elements of more than 16 bytes' alignment
 * are not. */
template <class T> class site_allocator {
  public:
    using value_type = T;
    using is_always_equal = std::true_type;

    site_allocator(const site &of) noexcept : site_(of) {} // NOLINT: for containers
    template <class U>
    site_allocator(const site_allocator<U> &other) noexcept : site_(other.of()) {} // NOLINT: likewise
    const site &of() const noexcept { return site_; }

    T *allocate(std::size_t count) {
        if (count > static_cast<std::size_t>(-1) / sizeof(T))
            throw std::bad_array_new_length();
        return static_cast<T *>(alignof(T) <= alignof(std::max_align_t)
                                    ? site_.allocate(count * sizeof(T))
                                    : detail::allocate(nullptr, count * sizeof(T), alignof(T)));
    }
    void deallocate(T *block, std::size_t) noexcept { hak_free(block); }

    template <class U> bool operator==(const site_allocator<U> &) const noexcept { return true; }
    template <class U> bool operator!=(const site_allocator<U> &) const noexcept { return false; }

  private:
    site site_;
};

} // namespace hakmem

#endif
