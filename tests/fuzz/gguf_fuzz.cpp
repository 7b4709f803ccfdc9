// A GGUF file: its head, looks at its keys, and the values of small tensors.
#include "engine/files/gguf.hpp"
#include "fuzz/fuzz_input.hpp"

#include <algorithm>
#include <vector>

namespace attune::fuzz {
namespace {

void check_tensor(const GgufHeader& header, const StoredTensor& tensor, std::span<const std::byte> file) {
    demand(tensor.begin <= file.size() && tensor.bytes <= file.size() - tensor.begin);
    demand(header.tensor(tensor.name) == &tensor);
    std::uint64_t count = 1;
    for (const std::int64_t extent : tensor.shape) {
        demand(extent >= 0);
        demand(!__builtin_mul_overflow(count, static_cast<std::uint64_t>(extent), &count));
    }
    const std::uint64_t block = block_elements(tensor.type);
    std::vector<float> values(std::min<std::uint64_t>(count, 4096) / block * block);
    convert_to_f32(tensor.type, file.data() + tensor.begin, values.data(), values.size());
}

void check_key(const GgufHeader& header, const std::string& key) {
    demand(header.find(key) != nullptr);
    (void)header.integer(key);
    (void)header.real(key);
    (void)header.boolean(key);
    (void)header.text(key);
    (void)header.array(key, GgufType::string);
    (void)header.array(key, GgufType::i32);
}

}  // namespace
}  // namespace attune::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace attune;
    const auto file = fuzz::bytes_of(data, size);
    const auto header = parse_gguf_header(file, "fuzz.gguf");
    if (!header) {
        fuzz::demand(!header.error().message.empty());
        return 0;
    }
    for (const auto& [key, value] : header->metadata) fuzz::check_key(*header, key);
    for (const StoredTensor& tensor : header->tensors) fuzz::check_tensor(*header, tensor, file);
    return 0;
}
