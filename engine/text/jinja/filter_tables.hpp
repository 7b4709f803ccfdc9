#pragma once

#include "engine/text/jinja/filters.hpp"

#include <unordered_map>

namespace attune::jinja {

using FilterTable = std::unordered_map<std::string_view, Filter>;

/// Filters over one value, and filters over sequences: two files, one look-up (find_filter).
const FilterTable& text_filters();
const FilterTable& list_filters();

}  // namespace attune::jinja
