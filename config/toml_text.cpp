#include "config/toml_text.hpp"

#include "attune/toml_bytes.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <system_error>
#include <vector>

namespace attune {

Result<toml::table> parse_toml(std::string_view text, const std::string& name) {
    if (const auto fault = find_toml_fault(text))
        return make_error(Errc::invalid_argument,
                          name + ", line " + std::to_string(fault->line) + ": not valid TOML: " + fault->what);
    try {
        return toml::parse(text, name);
    } catch (const toml::parse_error& error) {
        return make_error(Errc::invalid_argument, name + ", line " + std::to_string(error.source().begin.line) +
                                                      ": not valid TOML: " + std::string(error.description()));
    }
}

Result<std::string> read_text_file(const std::filesystem::path& path, std::uint64_t limit) {
    const std::string name = path.filename().string();
    std::error_code failed;
    const auto status = std::filesystem::status(path, failed);
    if (!std::filesystem::exists(status)) return make_error(Errc::not_found, name + ": no such file");
    if (!std::filesystem::is_regular_file(status)) return make_error(Errc::invalid_argument, name + ": not a file");
    std::ifstream in(path, std::ios::binary);
    if (!in) return make_error(Errc::io, name + ": cannot be opened for reading");
    std::string text;
    char block[1 << 16];
    while (in.read(block, sizeof block) || in.gcount() > 0) {
        text.append(block, static_cast<std::size_t>(in.gcount()));
        // Counted while reading: a size asked for beforehand may be old by now.
        if (text.size() > limit) {
            return make_error(Errc::invalid_argument,
                              name + ": larger than " + std::to_string(limit) + " bytes, which is the limit");
        }
    }
    if (in.bad()) return make_error(Errc::io, name + ": reading failed");
    return text;
}

namespace {

constexpr std::size_t kLongest = 120;  // bytes of a value in a message

std::string scalar_text(const toml::node& node) {
    std::ostringstream out;
    // Without literal strings: every text shows in the same quotes.
    out << toml::toml_formatter{node, toml::format_flags::allow_unicode_strings};
    return out.str();
}

std::string key_text(std::string_view key) {
    const bool is_bare = !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    });
    return is_bare ? std::string(key) : scalar_text(toml::value<std::string>(std::string(key)));
}

/// Lists and tables as they stand on one line; stops when `out` is long enough. toml++ 3.3 would estimate their width
/// first, with casts that some numbers (0.1, inf) make undefined.
void append_described(const toml::node& node, std::string& out) {
    if (const toml::array* list = node.as_array()) {
        out += "[";
        for (const toml::node& item : *list) {
            if (out.size() > kLongest) return;
            if (&item != &list->front()) out += ", ";
            append_described(item, out);
        }
        out += "]";
    } else if (const toml::table* table = node.as_table()) {
        out += "{";
        bool is_first = true;
        for (const auto& [key, value] : *table) {
            if (out.size() > kLongest) return;
            out += (is_first ? " " : ", ") + key_text(key.str()) + " = ";
            is_first = false;
            append_described(value, out);
        }
        out += is_first ? "}" : " }";
    } else {
        out += scalar_text(node);
    }
}

}  // namespace

std::string describe(const toml::node& node) {
    std::string text;
    append_described(node, text);
    if (text.size() > kLongest) {
        std::size_t cut = kLongest;
        while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) --cut;
        text.resize(cut);
        text += "...";
    }
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
}

std::string place_of(const toml::node& node, const std::string& name) {
    const auto line = node.source().begin.line;
    if (line == 0) return name.empty() ? std::string() : name + ": ";
    return name + ", line " + std::to_string(line) + ": ";
}

namespace {

std::size_t edits_between(std::string_view from, std::string_view to) {
    std::vector<std::size_t> row(to.size() + 1);
    for (std::size_t j = 0; j <= to.size(); ++j) row[j] = j;
    for (std::size_t i = 1; i <= from.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i;
        for (std::size_t j = 1; j <= to.size(); ++j) {
            const std::size_t above = row[j];
            row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (from[i - 1] == to[j - 1] ? 0 : 1)});
            diagonal = above;
        }
    }
    return row[to.size()];
}

}  // namespace

std::string nearest(std::string_view word, std::span<const std::string> known) {
    // Far longer words are never a typing slip, and the table above grows with the product of both lengths.
    if (word.size() > 64) return {};
    std::string best;
    std::size_t fewest = std::max<std::size_t>(2, word.size() / 3) + 1;
    for (const std::string& candidate : known) {
        const std::size_t edits = edits_between(word, candidate);
        if (edits < fewest) {
            fewest = edits;
            best = candidate;
        }
    }
    return best;
}

}  // namespace attune
