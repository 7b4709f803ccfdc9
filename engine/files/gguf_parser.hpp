#pragma once

#include "engine/files/byte_reader.hpp"
#include "engine/files/gguf.hpp"

#include <cstdint>
#include <string>

namespace attune {

/// Reads the head of one GGUF file into `header`, whose file_name and file_bytes are set. No count or length of the
/// file is believed before the bytes it needs are known to be there.
class GgufParser {
public:
    GgufParser(ByteReader& in, GgufHeader& header) : in_(in), header_(header) {}

    /// False when the file is refused or cannot be read: error() says why.
    bool parse();
    const Error& error() const { return error_; }

private:
    bool parse_counts();
    bool parse_metadata();
    bool parse_value(GgufValue& value);
    bool parse_array(GgufArray& array, int depth);
    bool parse_elements(GgufArray& array, std::uint64_t count, int depth);
    template <class T, class Into>
    bool parse_numbers(Into& into, std::uint64_t count);
    bool parse_boolean(bool& value);
    bool parse_string(std::string& value);
    bool parse_name(std::string& name);
    bool read_alignment();
    bool parse_tensors();
    bool parse_tensor(StoredTensor& tensor);
    bool place_tensors();
    bool check_overlaps();

    bool refuse(const std::string& fault);
    bool ends_early();

    ByteReader& in_;
    GgufHeader& header_;
    std::uint64_t metadata_count_ = 0;
    std::uint64_t tensor_count_ = 0;
    std::string place_;  // what is being read, for messages
    Error error_;
};

}  // namespace attune
