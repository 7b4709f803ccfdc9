// A package in one file (.attune, a tar), as it is and with the sums of its headers made right, which no mutation would
// hit: members lie inside of it, under paths that stay inside.
#include "engine/module/tar_index.hpp"
#include "fuzz/fuzz_input.hpp"
#include "fuzz/memory_file.hpp"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <vector>

namespace attune::fuzz {
namespace {

void check_members(std::span<const std::byte> bytes) {
    constexpr int kMaxFiles = 6;
    const MemoryFile file(bytes);
    const auto members = read_tar_index(file.get(), kMaxFiles);
    if (!members) return demand(members.error().code == Errc::invalid_module && !members.error().message.empty());
    demand(members->size() <= kMaxFiles);
    for (const auto& [name, member] : *members) {
        demand(member.begin <= bytes.size() && member.bytes <= bytes.size() - member.begin);
        const std::filesystem::path path(name);
        demand(!name.empty() && path.is_relative() && path.lexically_normal() == path);
        for (const auto& part : path) demand(part != ".." && part != "." && !part.empty());
    }
}

/// Every block gets a header's checksum; in blocks of content it changes nothing that is looked at.
std::vector<std::uint8_t> with_sums(const std::uint8_t* data, std::size_t size) {
    constexpr std::size_t kBlock = 512;
    constexpr std::size_t kSum = 148;
    std::vector<std::uint8_t> bytes(data, data + size);
    for (std::size_t at = 0; at + kBlock <= size; at += kBlock) {
        const auto block = bytes.begin() + static_cast<std::ptrdiff_t>(at);
        if (std::all_of(block, block + kBlock, [](std::uint8_t byte) { return byte == 0; })) continue;
        std::fill_n(block + kSum, 8, std::uint8_t{' '});
        unsigned sum = std::accumulate(block, block + kBlock, 0U);
        for (std::size_t digit = 6; digit-- > 0; sum /= 8)
            block[kSum + digit] = static_cast<std::uint8_t>('0' + sum % 8);
    }
    return bytes;
}

}  // namespace
}  // namespace attune::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace attune;
    fuzz::check_members(fuzz::bytes_of(data, size));
    const auto repaired = fuzz::with_sums(data, size);
    fuzz::check_members(std::as_bytes(std::span(repaired)));
    return 0;
}
