#pragma once

#include "engine/text/jinja/block_scope.hpp"
#include "engine/text/jinja/error.hpp"
#include "engine/text/jinja/expressions.hpp"
#include "engine/text/jinja/folding.hpp"
#include "engine/text/jinja/token.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace attune::jinja {

/// Nesting of brackets, blocks and operators; deeper templates are refused before they can exhaust the stack.
constexpr int kMaxNesting = 400;
/// Links of one chain (a + b + ..., x | f | g ...): each is one more level of the tree.
constexpr int kMaxChain = 300;

/// The half of the parser that reads expressions; Parser (parser.cpp) adds statements.
class ExpressionParser {
public:
    /// What the tree keeps of the source goes to `arena`.
    ExpressionParser(Arena& arena, std::string_view source)
        : arena_(arena), tokens_(tokenize(source)), folder_(arena) {}

protected:
    // ---- tokens ----
    const Token& current() const { return tokens_[at_]; }
    const Token& look() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
    Token next() {
        Token token = tokens_[at_];
        if (at_ + 1 < tokens_.size()) ++at_;
        return token;
    }
    bool skip_name(std::string_view word) {
        if (!current().is_name(word)) return false;
        next();
        return true;
    }
    bool skip_op(std::string_view symbol) {
        if (!current().is_op(symbol)) return false;
        next();
        return true;
    }
    [[noreturn]] static void fail(const std::string& message) { throw Failure("TemplateSyntaxError", message); }
    void expect(TokenKind kind, std::string_view what) {
        if (current().kind != kind) expected(what);
        next();
    }
    void expect_op(std::string_view symbol) {
        if (!skip_op(symbol)) expected(symbol);
    }
    [[noreturn]] void expected(std::string_view what) const {
        if (current().kind == TokenKind::end) {
            fail("unexpected end of template, expected '" + std::string(what) + "'.");
        }
        fail("expected token '" + std::string(what) + "', got '" + described(current()) + "'");
    }
    std::string_view expect_name() {
        if (current().kind != TokenKind::name) expected("name");
        return kept(next().text);
    }
    std::string_view kept(std::string_view text) { return arena_.copy(text); }
    Symbol symbol_of(std::string_view name) {
        const auto found = symbols_.find(name);
        if (found != symbols_.end()) return found->second;
        return symbols_.try_emplace(kept(name), static_cast<Symbol>(symbols_.size())).first->second;
    }

    class Nested {
    public:
        explicit Nested(ExpressionParser& parser) : parser_(parser) {
            if (++parser_.nesting_ > kMaxNesting) fail("the template is nested too deeply");
        }
        ~Nested() { --parser_.nesting_; }
        Nested(const Nested&) = delete;
        Nested& operator=(const Nested&) = delete;

    private:
        ExpressionParser& parser_;
    };
    static void check_chain(int links) {
        if (links > kMaxChain) fail("an expression is too long");
    }

    /// Where the parser stands, as far as rules depend on it.
    struct Place {
        bool soft = false;  ///< unknown filters and tests fail only when reached
        int loops = 0;
    };
    class InPlace {
    public:
        InPlace(ExpressionParser& parser, Place place) : parser_(parser), outer_(parser.place_) {
            parser_.place_ = place;
        }
        ~InPlace() { parser_.place_ = outer_; }
        InPlace(const InPlace&) = delete;
        InPlace& operator=(const InPlace&) = delete;

    private:
        ExpressionParser& parser_;
        Place outer_;
    };

    /// A node; the constant it is worth where all its operands are `fixed`.
    template <class Node, class... Parts>
    ExpressionPtr node(bool fixed, Parts&&... parts) {
        auto made = std::make_unique<Node>(std::forward<Parts>(parts)...);
        return fixed ? folder_.folded(std::move(made)) : ExpressionPtr(std::move(made));
    }
    template <class... Operands>
    static bool all_fixed(const Operands&... operands) {
        return ((!operands || operands->is_fixed()) && ...);
    }
    static bool are_fixed(const std::vector<ExpressionPtr>& operands) {
        return std::all_of(operands.begin(), operands.end(), [](const auto& operand) { return operand->is_fixed(); });
    }

    // ---- expressions, weakest binding first ----
    ExpressionPtr expression();
    ExpressionPtr tuple(bool with_condition = true, std::string_view end_word = {}, bool in_parentheses = false);
    ExpressionPtr conditional();
    /// Whether `if` follows before this expression ends.
    bool has_inline_if() const;
    ExpressionPtr logical_or();
    ExpressionPtr logical_and();
    ExpressionPtr logical_not();
    std::optional<Comparison> comparison_operator();
    ExpressionPtr comparison();
    ExpressionPtr binary(BinaryOperator op, ExpressionPtr left, ExpressionPtr right);
    ExpressionPtr sum();
    ExpressionPtr concatenation();
    ExpressionPtr product();
    ExpressionPtr power();
    ExpressionPtr unary(bool with_filters = true);
    ExpressionPtr primary();
    ExpressionPtr name(std::string_view word);
    ExpressionPtr list();
    /// A list or tuple of constants is one constant.
    ExpressionPtr display(std::vector<ExpressionPtr> items, bool is_tuple);
    ExpressionPtr dict();
    ExpressionPtr postfix(ExpressionPtr value);
    ExpressionPtr call(ExpressionPtr callee);
    ExpressionPtr subscript(ExpressionPtr value);
    CallArguments call_arguments();
    ExpressionPtr filters_and_tests(ExpressionPtr value);
    std::string_view dotted_name();
    ExpressionPtr filters(ExpressionPtr value, bool starts_with_name = false);
    static std::unique_ptr<const FilterCall> as_filter(ExpressionPtr chain);
    ExpressionPtr test(ExpressionPtr value);

    Arena& arena_;
    std::vector<Token> tokens_;
    std::size_t at_ = 0;
    int nesting_ = 0;
    Place place_;
    BlockScopes scopes_;
    std::unordered_map<std::string_view, Symbol> symbols_;
    std::vector<MacroCode*> open_macros_;  ///< whose bodies are being parsed
    ConstantFolder folder_;
    bool folds_calls_ = true;
};

}  // namespace attune::jinja
