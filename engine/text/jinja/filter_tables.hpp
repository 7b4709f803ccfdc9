#pragma once

#include "engine/text/jinja/filters.hpp"

#include <optional>
#include <span>
#include <unordered_map>

namespace attune::jinja {

using FilterTable = std::unordered_map<std::string_view, Filter>;

/// Filters over texts, over other values, over sequences and their order: a file each, one look-up (find_filter).
const FilterTable& text_filters();
const FilterTable& value_filters();
const FilterTable& list_filters();
const FilterTable& order_filters();

// What the last two share.
Value make_generator(const Values& items);
/// The items, paid for.
std::span<const Value> taken(Context& context, const Value& value);
/// item.a.0.b for attribute "a.0.b"; an integer is one index.
Value attribute_path(Context& context, const Value& item, const Value& attribute, const std::optional<Value>& fallback);

}  // namespace attune::jinja
