#include "engine/text/added_tokens.hpp"

#include "engine/text/unicode.hpp"

#include <algorithm>
#include <utility>

namespace attune {
namespace {

bool is_inside_word(std::string_view text, std::size_t begin, std::size_t end) {
    const bool before = begin > 0 && is_word_character(code_point_before(text, begin).value);
    const bool after = end < text.size() && is_word_character(code_point_at(text, end).value);
    return before || after;
}

std::size_t skip_spaces_back(std::string_view text, std::size_t end) {
    while (end > 0) {
        const CodePoint point = code_point_before(text, end);
        if (!is_white_space(point.value)) break;
        end -= point.bytes;
    }
    return end;
}

std::size_t skip_spaces(std::string_view text, std::size_t begin) {
    while (begin < text.size()) {
        const CodePoint point = code_point_at(text, begin);
        if (!is_white_space(point.value)) break;
        begin += point.bytes;
    }
    return begin;
}

}  // namespace

std::int32_t AddedTokenMatcher::Node::child(unsigned char byte) const {
    for (const auto& [branch, node] : next) {
        if (branch == byte) return node;
    }
    return -1;
}

AddedTokenMatcher::AddedTokenMatcher(std::vector<const AddedToken*> tokens, const std::vector<std::string>& contents)
    : tokens_(std::move(tokens)) {
    const auto new_node = [this] {
        nodes_.emplace_back();
        return static_cast<std::int32_t>(nodes_.size() - 1);
    };
    new_node();
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
        if (contents[i].empty()) continue;
        std::int32_t at = 0;
        for (const char c : contents[i]) {
            const auto byte = static_cast<unsigned char>(c);
            std::int32_t next = nodes_[static_cast<std::size_t>(at)].child(byte);
            if (next < 0) {
                next = new_node();
                nodes_[static_cast<std::size_t>(at)].next.emplace_back(byte, next);
            }
            at = next;
        }
        starts_[static_cast<unsigned char>(contents[i][0])] = true;
        Node& last = nodes_[static_cast<std::size_t>(at)];
        if (last.token < 0) last.token = static_cast<std::int32_t>(i);  // the first of two equal ones wins
    }
}

AddedTokenMatcher::Found AddedTokenMatcher::match_at(std::string_view text, std::size_t begin,
                                                     const LiteralAt& literal_at) const {
    Found found;
    std::int32_t at = 0;
    for (std::size_t end = begin; end < text.size();) {
        at = nodes_[static_cast<std::size_t>(at)].child(static_cast<unsigned char>(text[end]));
        if (at < 0) break;
        ++end;
        const std::int32_t index = nodes_[static_cast<std::size_t>(at)].token;
        if (index < 0) continue;
        const AddedToken* token = tokens_[static_cast<std::size_t>(index)];
        const Literal literal = token->special && literal_at ? literal_at(begin, end) : Literal::none;
        // A match that user text helped to make is no match at all, so that it cannot hide a token of the template.
        if (literal == Literal::partly) continue;
        found = {token, end, literal == Literal::wholly};
    }
    return found;
}

std::vector<AddedTokenMatcher::Part> AddedTokenMatcher::split(std::string_view text,
                                                              const LiteralAt& literal_at) const {
    std::vector<Part> parts;
    std::size_t done = 0;
    std::size_t at = 0;
    while (at < text.size()) {
        if (!starts_[static_cast<unsigned char>(text[at])]) {
            ++at;
            continue;
        }
        const Found found = match_at(text, at, literal_at);
        if (found.token == nullptr) {
            ++at;
            continue;
        }
        std::size_t begin = at;
        std::size_t end = found.end;
        at = end;
        if (found.plain || (found.token->single_word && is_inside_word(text, begin, end))) continue;
        if (found.token->lstrip) begin = std::max(skip_spaces_back(text, begin), done);
        if (found.token->rstrip) end = skip_spaces(text, end);
        if (done < begin) parts.push_back({done, begin, nullptr});
        parts.push_back({begin, end, found.token});
        done = end;
    }
    if (done < text.size()) parts.push_back({done, text.size(), nullptr});
    return parts;
}

}  // namespace attune
