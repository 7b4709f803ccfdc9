#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

namespace attune::jinja {

/// Memory that is given back all at once: a template's constants live in one, all that a rendering makes in another.
/// So values are plain data that point to each other freely, and making one is moving a pointer. Nothing in it is
/// destroyed, only forgotten. For one thread.
class Arena {
public:
    static constexpr std::size_t kMostBytes = std::size_t{192} << 20;

    /// Throws Failure (OverflowError) beyond `most_bytes`.
    explicit Arena(std::size_t most_bytes = kMostBytes)
        : next_(first_), end_(first_ + kFirstBytes), left_(most_bytes - std::min(most_bytes, kFirstBytes)) {}
    ~Arena();
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    /// Aligned to 8 bytes.
    std::byte* allocate(std::size_t bytes) {
        bytes = rounded(bytes);
        if (bytes > static_cast<std::size_t>(end_ - next_)) return allocate_elsewhere(bytes);
        return std::exchange(next_, next_ + bytes);
    }
    /// Makes a block longer where it stands, if it was the last one made.
    bool extend(const void* block, std::size_t bytes, std::size_t wanted_bytes) {
        if (static_cast<const std::byte*>(block) + rounded(bytes) != next_) return false;
        const std::size_t more = rounded(wanted_bytes) - rounded(bytes);
        if (more > static_cast<std::size_t>(end_ - next_)) return false;
        next_ += more;
        return true;
    }
    template <class T, class... Arguments>
    T* make(Arguments&&... arguments) {
        static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= kAlignment);
        return new (allocate(sizeof(T))) T(std::forward<Arguments>(arguments)...);
    }
    std::string_view copy(std::string_view text) {
        if (text.empty()) return "";  // never null: C functions get these
        auto* bytes = reinterpret_cast<char*>(allocate(text.size()));
        std::memcpy(bytes, text.data(), text.size());
        return {bytes, text.size()};
    }

private:
    static constexpr std::size_t kAlignment = 8;
    struct Block {
        Block* before;
    };
    static std::size_t rounded(std::size_t bytes) { return (bytes + kAlignment - 1) & ~(kAlignment - 1); }
    std::byte* allocate_elsewhere(std::size_t bytes);

    /// Enough for most renderings, which then ask nobody for memory.
    static constexpr std::size_t kFirstBytes = 8 << 10;

    std::byte* next_;
    std::byte* end_;
    Block* last_ = nullptr;
    std::size_t block_bytes_ = 8 << 10;
    std::size_t left_;
    alignas(kAlignment) std::byte first_[kFirstBytes];  // NOLINT: left as it is, it is only written to
};

/// A list of plain values that grows inside an arena.
template <class T>
class ArenaVector {
public:
    explicit ArenaVector(Arena& arena) : arena_(&arena) { static_assert(std::is_trivially_copyable_v<T>); }
    ArenaVector(Arena& arena, std::span<const T> items) : ArenaVector(arena) { append(items); }

    void push_back(const T& item) {
        if (size_ == capacity_) grow(size_ + 1);
        new (data_ + size_++) T(item);
    }
    void append(std::span<const T> items) {
        if (items.empty()) return;
        if (size_ + items.size() > capacity_) grow(size_ + items.size());
        std::memcpy(static_cast<void*>(data_ + size_), items.data(), items.size() * sizeof(T));
        size_ += items.size();
    }
    void reserve(std::size_t count) {
        if (count > capacity_) grow(count);
    }
    void clear() { size_ = 0; }
    /// Room for `count` more items, to be written at end() and then taken over by extend().
    T* room(std::size_t count) {
        if (size_ + count > capacity_) grow(size_ + count);
        return data_ + size_;
    }
    void extend(std::size_t count) { size_ += count; }
    std::size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    T* begin() { return data_; }
    T* end() { return data_ + size_; }
    const T* begin() const { return data_; }
    const T* end() const { return data_ + size_; }
    T& operator[](std::size_t i) { return data_[i]; }
    const T& operator[](std::size_t i) const { return data_[i]; }
    T& back() { return data_[size_ - 1]; }
    std::span<const T> view() const { return {data_, size_}; }
    Arena& arena() const { return *arena_; }

private:
    void grow(std::size_t count) {
        // Twice as much each time, so that a list of n items is moved O(1) times an item.
        const std::size_t wanted = count > 2 * capacity_ ? count + 4 / sizeof(T) * 4 : 2 * capacity_;
        if (data_ != nullptr && arena_->extend(data_, capacity_ * sizeof(T), wanted * sizeof(T))) {
            capacity_ = wanted;
            return;
        }
        T* moved = reinterpret_cast<T*>(arena_->allocate(wanted * sizeof(T)));
        if (size_ > 0) std::memcpy(static_cast<void*>(moved), data_, size_ * sizeof(T));
        data_ = moved;
        capacity_ = wanted;
    }

    Arena* arena_;
    T* data_ = nullptr;
    std::size_t size_ = 0;
    std::size_t capacity_ = 0;
};

}  // namespace attune::jinja
