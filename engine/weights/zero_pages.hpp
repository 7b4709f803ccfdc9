#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <vector>

namespace attune {

enum class PageSize : unsigned char {
    usual,  ///< memory appears page by page, at first use: the KV cache
    huge,   ///< asks for huge pages: weights, which are read from end to end at every step
};

/// A zero-filled tensor. On the CPU a large one is anonymous memory straight from the kernel: zero without being
/// written, so that a cache sized for the worst case costs only what is used of it.
torch::Tensor zero_pages(const std::vector<std::int64_t>& shape, torch::Dtype dtype, torch::Device device,
                         PageSize pages);

/// Asks the kernel for the pages of [begin, begin + bytes) now instead of at their first use; contents stay. From any
/// thread; where the kernel cannot, nothing happens.
void populate_pages(const void* begin, std::size_t bytes);

}  // namespace attune
