#pragma once

#include "attune/result.hpp"
#include "engine/files/safetensors.hpp"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace attune {

/// One entry of the header's JSON, offsets still relative to the data.
struct HeaderEntry {
    std::string type_name;
    std::vector<std::uint64_t> shape;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
};

struct HeaderText {
    std::map<std::string, HeaderEntry> entries;
    std::map<std::string, std::string> metadata;
};

/// The JSON alone: right types everywhere, no field twice in an entry, metadata at most once. A tensor named twice
/// keeps its last entry, as the reference library does; bytes only the first one named then belong to nobody, which the
/// offset check refuses.
Result<HeaderText> parse_header_text(std::string_view json, const std::string& file_name);

/// Size of an element type in bits and our name for it; false for a type the format does not know.
bool stored_type(std::string_view type_name, StoredType& type, std::uint64_t& bits);

}  // namespace attune
