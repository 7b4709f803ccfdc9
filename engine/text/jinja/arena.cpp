#include "engine/text/jinja/arena.hpp"

#include "engine/text/jinja/error.hpp"

#include <algorithm>
#include <cstdlib>

namespace attune::jinja {
namespace {

constexpr std::size_t kLargestBlock = std::size_t{1} << 20;

}  // namespace

Arena::~Arena() {
    while (last_ != nullptr) std::free(std::exchange(last_, last_->before));
}

std::byte* Arena::allocate_elsewhere(std::size_t bytes) {
    // What is large gets a block of its own, and the current one goes on.
    const bool alone = bytes > block_bytes_ / 4;
    const std::size_t room = alone ? bytes : std::max(bytes, block_bytes_);
    if (room > left_) throw Failure("OverflowError", "the template uses too much memory");
    auto* memory = static_cast<std::byte*>(std::malloc(sizeof(Block) + room));
    if (memory == nullptr) throw std::bad_alloc();
    left_ -= room;
    last_ = new (memory) Block{last_};
    std::byte* begin = memory + sizeof(Block);
    if (alone) return begin;
    block_bytes_ = std::min(2 * block_bytes_, kLargestBlock);
    next_ = begin + bytes;
    end_ = begin + room;
    return begin;
}

}  // namespace attune::jinja
