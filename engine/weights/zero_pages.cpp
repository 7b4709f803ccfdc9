#include "engine/weights/zero_pages.hpp"

#include <sys/mman.h>

namespace attune {

namespace {

// Below it the allocator's memory is as good, and a page would be mostly padding.
constexpr std::size_t kLargeBytes = 64u << 10;

}  // namespace

torch::Tensor zero_pages(const std::vector<std::int64_t>& shape, torch::Dtype dtype, torch::Device device,
                         PageSize pages) {
    const auto options = torch::TensorOptions().dtype(dtype).device(device);
    std::size_t bytes = torch::elementSize(dtype);
    for (const std::int64_t extent : shape) bytes *= static_cast<std::size_t>(extent);
    if (!device.is_cpu() || bytes < kLargeBytes) return torch::zeros(shape, options);
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return torch::zeros(shape, options);  // which says how much was asked for
    // A wish: where it is refused the memory works all the same.
    if (pages == PageSize::huge) (void)::madvise(memory, bytes, MADV_HUGEPAGE);
    return torch::from_blob(
        memory, shape, [bytes](void* from) { ::munmap(from, bytes); }, options);
}

}  // namespace attune
