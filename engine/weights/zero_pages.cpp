#include "engine/weights/zero_pages.hpp"

#include <cstdint>

#include <sys/mman.h>
#include <unistd.h>

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

void populate_pages(const void* begin, std::size_t bytes) {
#ifdef MADV_POPULATE_WRITE
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto first = reinterpret_cast<std::uintptr_t>(begin);
    const std::uintptr_t from = (first + page - 1) / page * page;
    const std::uintptr_t to = (first + bytes) / page * page;
    if (to > from) (void)::madvise(reinterpret_cast<void*>(from), to - from, MADV_POPULATE_WRITE);
#else
    static_cast<void>(begin);
    static_cast<void>(bytes);
#endif
}

}  // namespace attune
