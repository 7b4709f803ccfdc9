#pragma once

#include "engine/files/gguf.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace attune {

/// Writes GGUF bytes for tests, right ones and wrong ones: nothing is checked, counts are those of the calls.
class GgufBytes {
public:
    GgufBytes& key(std::string_view name, GgufType type) {
        ++keys_;
        text(metadata_, name);
        number(metadata_, static_cast<std::uint32_t>(type));
        return *this;
    }
    template <class T>
    requires std::is_arithmetic_v<T> GgufBytes& value(T raw) {
        number(metadata_, raw);
        return *this;
    }
    GgufBytes& value(std::string_view raw) {
        text(metadata_, raw);
        return *this;
    }
    /// Begins an array value: its elements follow by value().
    GgufBytes& array(GgufType element, std::uint64_t count) {
        number(metadata_, static_cast<std::uint32_t>(element));
        number(metadata_, count);
        return *this;
    }
    /// `extents` as in the file: the first one runs fastest.
    GgufBytes& tensor(std::string_view name, const std::vector<std::uint64_t>& extents, std::uint32_t type,
                      std::uint64_t offset) {
        ++tensors_;
        text(infos_, name);
        number(infos_, static_cast<std::uint32_t>(extents.size()));
        for (const std::uint64_t extent : extents) number(infos_, extent);
        number(infos_, type);
        number(infos_, offset);
        return *this;
    }
    /// The file, padded to `alignment`, with `data_bytes` zeros as data.
    std::vector<std::byte> file(std::size_t data_bytes = 0, std::size_t alignment = 32) const {
        std::string bytes = "GGUF";
        number(bytes, std::uint32_t{3});
        number(bytes, tensors_);
        number(bytes, keys_);
        bytes += metadata_ + infos_;
        bytes.resize((bytes.size() + alignment - 1) / alignment * alignment + data_bytes);
        const auto raw = std::as_bytes(std::span(bytes));
        return {raw.begin(), raw.end()};
    }

private:
    template <class T>
    static void number(std::string& into, T raw) {
        into.append(reinterpret_cast<const char*>(&raw), sizeof raw);
    }
    static void text(std::string& into, std::string_view raw) {
        number(into, std::uint64_t{raw.size()});
        into += raw;
    }

    std::string metadata_, infos_;
    std::uint64_t keys_ = 0;
    std::uint64_t tensors_ = 0;
};

}  // namespace attune
