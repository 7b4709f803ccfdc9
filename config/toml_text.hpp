#pragma once

#include "attune/result.hpp"

#include <toml_parser.hpp>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace attune {

/// Helpers of the two TOML readers beside this file; not for other rooms.

/// `name` is what errors call the text (a file name, never a path).
Result<toml::table> parse_toml(std::string_view text, const std::string& name);

/// A regular file of at most `limit` bytes.
Result<std::string> read_text_file(const std::filesystem::path& path, std::uint64_t limit);

/// The value as TOML, cut to a length that fits a message.
std::string describe(const toml::node& node);

/// "attune.toml, line 12: "; without a line when the node was not read from a text.
std::string place_of(const toml::node& node, const std::string& name);

/// The known word closest to `word` by edits, or empty when none is close.
std::string nearest(std::string_view word, std::span<const std::string> known);

}  // namespace attune
