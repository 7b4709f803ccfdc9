#pragma once

#include "engine/text/jinja/value.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace attune::jinja {

enum class TokenKind : std::uint8_t {
    data,
    variable_begin,
    variable_end,
    block_begin,
    block_end,
    name,
    string,
    integer,
    floating,
    op,
    end,
};

struct Token {
    TokenKind kind = TokenKind::end;
    std::string text;  ///< data, a name, a string's value, or an operator
    Value number;

    bool is_op(std::string_view symbol) const { return kind == TokenKind::op && text == symbol; }
    bool is_name(std::string_view word) const { return kind == TokenKind::name && text == word; }
};

/// Takes a template apart as jinja2 does with trim_blocks and lstrip_blocks on and keep_trailing_newline off.
/// Throws Failure (TemplateSyntaxError).
std::vector<Token> tokenize(std::string_view source);

/// How jinja2 names a token in its messages.
std::string described(const Token& token);

}  // namespace attune::jinja
