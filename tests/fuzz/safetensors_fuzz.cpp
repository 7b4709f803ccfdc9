// A safetensors file: header, offsets, and the values of small tensors.
#include "engine/files/safetensors.hpp"
#include "fuzz/fuzz_input.hpp"

#include <algorithm>
#include <vector>

namespace attune::fuzz {
namespace {

void check_tensor(const SafetensorsHeader& header, const StoredTensor& tensor, std::span<const std::byte> file) {
    demand(tensor.begin <= file.size() && tensor.bytes <= file.size() - tensor.begin);
    demand(header.find(tensor.name) == &tensor);
    std::uint64_t count = 1;
    for (const std::int64_t extent : tensor.shape) {
        demand(extent >= 0);
        demand(!__builtin_mul_overflow(count, static_cast<std::uint64_t>(extent), &count));
    }
    std::vector<float> values(std::min<std::uint64_t>(count, 4096));
    convert_to_f32(tensor.type, file.data() + tensor.begin, values.data(), values.size());
}

}  // namespace
}  // namespace attune::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace attune;
    const auto file = fuzz::bytes_of(data, size);
    const auto header = parse_safetensors_header(file, "fuzz.safetensors");
    if (!header) return 0;
    fuzz::demand(header->file_bytes == size);
    fuzz::demand(std::is_sorted(header->tensors.begin(), header->tensors.end(),
                                [](const auto& one, const auto& other) { return one.name < other.name; }));
    for (const StoredTensor& tensor : header->tensors) fuzz::check_tensor(*header, tensor, file);
    return 0;
}
