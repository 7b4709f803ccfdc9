#include "engine/module/tensor_reader.hpp"

#include "engine/files/quote.hpp"
#include "engine/module/package_files.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace attune {
namespace {

constexpr std::size_t kSliceBytes = 256u << 10;  // staging while tensors are read, hashed and converted

// Infinities and NaN have all exponent bits set. Without branches, so that the loop runs over vectors.
bool all_finite(std::span<const float> values) {
    std::uint32_t found = 0;
    for (const float value : values)
        found |= static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(value) & 0x7F800000U) == 0x7F800000U);
    return found == 0;
}

}  // namespace

std::size_t element_count(const StoredTensor& tensor) {
    std::size_t count = 1;
    for (const std::int64_t extent : tensor.shape) count *= static_cast<std::size_t>(extent);
    return count;
}

bool has_plain_values(const StoredTensor& tensor) {
    return tensor.type == StoredType::f32 || tensor.type == StoredType::f16 || tensor.type == StoredType::bf16;
}

std::vector<const StoredTensor*> in_file_order(const std::vector<StoredTensor>& tensors) {
    std::vector<const StoredTensor*> order;
    for (const StoredTensor& tensor : tensors)
        if (tensor.bytes > 0) order.push_back(&tensor);
    std::sort(order.begin(), order.end(),
              [](const StoredTensor* x, const StoredTensor* y) { return x->begin < y->begin; });
    return order;
}

TensorReader::TensorReader(const ReadOnlyFile& file, GenerationHash& hash)
    : file_(file), hash_(hash), slice_(kSliceBytes) {}

Result<void> TensorReader::read(const StoredTensor& tensor, std::size_t first, std::span<float> into) {
    const std::size_t per_block = block_elements(tensor.type);
    const std::size_t bytes_per_block = block_bytes(tensor.type);
    std::uint64_t at = tensor.begin + first / per_block * bytes_per_block;
    while (!into.empty()) {
        const std::size_t blocks = std::min(into.size() / per_block, slice_.size() / bytes_per_block);
        const std::span<std::byte> bytes(slice_.data(), blocks * bytes_per_block);
        const std::span<float> some = into.first(blocks * per_block);
        if (auto read = file_.read(at, bytes); !read) return read.error();
        hash_.update(bytes);
        if (blocks == 0 || !convert_to_f32(tensor.type, bytes.data(), some.data(), some.size()))
            return make_error(Errc::invalid_module, file_.name() + ": tensor " + in_quotes(tensor.name) + ": dtype " +
                                                        tensor.type_name + " is not supported");
        if (!all_finite(some))
            return make_error(Errc::invalid_module, file_.name() + ": tensor " + in_quotes(tensor.name) +
                                                        " holds a value that is not finite");
        at += bytes.size();
        into = into.subspan(some.size());
    }
    return {};
}

Result<void> TensorReader::pass(std::uint64_t begin, std::uint64_t end) {
    while (begin < end) {
        const std::span<std::byte> bytes(slice_.data(), std::min<std::uint64_t>(end - begin, slice_.size()));
        if (auto read = file_.read(begin, bytes); !read) return read;
        hash_.update(bytes);
        begin += bytes.size();
    }
    return {};
}

}  // namespace attune
