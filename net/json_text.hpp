#pragma once

#include "attune/result.hpp"
#include "attune/utf8.hpp"

#include <boost/json/value.hpp>

#include <string>
#include <string_view>

namespace attune {

/// Reads one JSON document, at most `max_depth` deep. Bad UTF-8, lone surrogates and anything after the document are
/// Errc::invalid_argument naming the byte; of equal keys the last counts. A number is the double nearest to it.
Result<boost::json::value> parse_json(std::string_view text, int max_depth);

/// The same for a body that must be an object; an optional one may be empty.
Result<boost::json::object> parse_json_object(std::string_view text, int max_depth, bool is_optional = false);

/// Appends `text` as a JSON string with its quotes; bytes that are no UTF-8 become U+FFFD.
void append_json_string(std::string& out, std::string_view text);
void append_json_number(std::string& out, std::int64_t number);
/// Non-finite numbers cannot be written in JSON: they become 0.
void append_json_number(std::string& out, double number);

/// The value as compact JSON, its numbers as above (Boost.JSON's own writer makes 2E0 of 2.0). What was read as a
/// number beyond double is written as one again, so that the next reader refuses it too.
std::string to_json(const boost::json::value& value);

/// The text with every byte that is not part of a UTF-8 character replaced by U+FFFD.
std::string lossy_utf8(std::string_view text);
/// Characters (code points), as text_offset counts them.
std::size_t utf8_length(std::string_view text);

}  // namespace attune
