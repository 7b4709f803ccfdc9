#pragma once

#include "attune/result.hpp"

#include <nlohmann/json.hpp>

#include <cstddef>
#include <span>
#include <string>

namespace attune {

/// Keys stay in the order of the file: PEFT's patterns are tried in that order.
using OrderedJson = nlohmann::ordered_json;

/// Errc::invalid_module naming the file unless the text is a JSON object of sane depth.
Result<OrderedJson> parse_json_object(std::span<const std::byte> text, const std::string& file_name);

/// The member, or a null value when there is none.
const OrderedJson& member(const OrderedJson& object, const char* key);

/// null, false, "", [] or {}: a setting that was left alone.
bool is_empty(const OrderedJson& value);

/// The value as JSON text for a message, cut when long.
std::string short_text(const OrderedJson& value);

}  // namespace attune
