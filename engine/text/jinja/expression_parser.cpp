#include "engine/text/jinja/expression_parser.hpp"

#include <array>

namespace attune::jinja {

ExpressionPtr ExpressionParser::expression() { return conditional(); }

ExpressionPtr ExpressionParser::tuple(bool with_condition, std::string_view end_word, bool in_parentheses) {
    std::vector<ExpressionPtr> items;
    bool is_tuple = false;
    while (true) {
        if (!items.empty()) expect_op(",");
        const bool ended = current().kind == TokenKind::variable_end || current().kind == TokenKind::block_end ||
                           current().is_op(")") || (!end_word.empty() && current().is_name(end_word));
        if (ended) break;
        items.push_back(with_condition ? expression() : logical_or());
        if (!current().is_op(",")) break;
        is_tuple = true;
    }
    if (!is_tuple && !items.empty()) return std::move(items[0]);
    if (!is_tuple && !in_parentheses) fail("Expected an expression, got '" + described(current()) + "'");
    return display(std::move(items), true);
}

ExpressionPtr ExpressionParser::conditional() {
    const Nested nested(*this);
    // Filters and tests inside `a if b else c` need to exist only when they are reached.
    const InPlace inside(*this, {place_.soft || has_inline_if(), place_.loops});
    ExpressionPtr value = logical_or();
    for (int links = 0; skip_name("if"); ++links) {
        check_chain(links);
        ExpressionPtr test = logical_or();
        ExpressionPtr otherwise = skip_name("else") ? conditional() : nullptr;
        const bool fixed = otherwise && all_fixed(test, value, otherwise);
        value = node<Conditional>(fixed, std::move(test), std::move(value), std::move(otherwise));
    }
    return value;
}

bool ExpressionParser::has_inline_if() const {
    int depth = 0;
    for (std::size_t i = at_; i < tokens_.size(); ++i) {
        const Token& token = tokens_[i];
        if (token.kind == TokenKind::block_end || token.kind == TokenKind::variable_end) return false;
        if (token.is_op("(") || token.is_op("[") || token.is_op("{")) ++depth;
        if (token.is_op(")") || token.is_op("]") || token.is_op("}")) --depth;
        if (depth < 0 || (depth == 0 && token.is_op(","))) return false;
        if (depth == 0 && token.is_name("if")) return true;
    }
    return false;
}

ExpressionPtr ExpressionParser::logical_or() {
    ExpressionPtr left = logical_and();
    for (int links = 0; skip_name("or"); ++links) {
        check_chain(links);
        ExpressionPtr right = logical_and();
        left = node<Logical>(all_fixed(left, right), std::move(left), std::move(right), false);
    }
    return left;
}

ExpressionPtr ExpressionParser::logical_and() {
    ExpressionPtr left = logical_not();
    for (int links = 0; skip_name("and"); ++links) {
        check_chain(links);
        ExpressionPtr right = logical_not();
        left = node<Logical>(all_fixed(left, right), std::move(left), std::move(right), true);
    }
    return left;
}

ExpressionPtr ExpressionParser::logical_not() {
    const Nested nested(*this);
    if (!skip_name("not")) return comparison();
    ExpressionPtr operand = logical_not();
    return node<Not>(all_fixed(operand), std::move(operand));
}

std::optional<Comparison> ExpressionParser::comparison_operator() {
    struct Operator {
        std::string_view symbol;
        Comparison comparison;
    };
    static constexpr std::array kOperators = {
        Operator{"==", Comparison::equal},  Operator{"!=", Comparison::not_equal},
        Operator{"<", Comparison::less},    Operator{"<=", Comparison::less_equal},
        Operator{">", Comparison::greater}, Operator{">=", Comparison::greater_equal},
    };
    for (const Operator& candidate : kOperators) {
        if (skip_op(candidate.symbol)) return candidate.comparison;
    }
    if (skip_name("in")) return Comparison::in;
    if (current().is_name("not") && look().is_name("in")) {
        next();
        next();
        return Comparison::not_in;
    }
    return std::nullopt;
}

ExpressionPtr ExpressionParser::comparison() {
    ExpressionPtr first = sum();
    Compare::Operands rest;
    bool fixed = first->is_fixed();
    while (const auto comparison = comparison_operator()) {
        check_chain(static_cast<int>(rest.size()));
        rest.emplace_back(*comparison, sum());
        fixed = fixed && rest.back().second->is_fixed();
    }
    if (rest.empty()) return first;
    return node<Compare>(fixed, std::move(first), std::move(rest));
}

ExpressionPtr ExpressionParser::binary(BinaryOperator op, ExpressionPtr left, ExpressionPtr right) {
    return node<Binary>(all_fixed(left, right), op, std::move(left), std::move(right));
}

ExpressionPtr ExpressionParser::sum() {
    ExpressionPtr left = concatenation();
    std::vector<ExpressionPtr> added;  // a + b + ...: one node
    const auto finish_sum = [&] {
        if (added.empty()) return;
        const bool fixed = are_fixed(added);
        left = node<Sum>(fixed, std::exchange(added, {}));
    };
    for (int links = 0; current().is_op("+") || current().is_op("-"); ++links) {
        check_chain(links);
        if (next().text == "+") {
            if (added.empty()) added.push_back(std::move(left));
            added.push_back(concatenation());
        } else {
            finish_sum();
            left = binary(BinaryOperator::subtract, std::move(left), concatenation());
        }
    }
    finish_sum();
    return left;
}

ExpressionPtr ExpressionParser::concatenation() {
    std::vector<ExpressionPtr> parts;
    parts.push_back(product());
    while (skip_op("~")) parts.push_back(product());
    if (parts.size() == 1) return std::move(parts[0]);
    const bool fixed = are_fixed(parts);
    return node<Concatenation>(fixed, std::move(parts));
}

ExpressionPtr ExpressionParser::product() {
    ExpressionPtr left = power();
    for (int links = 0;; ++links) {
        check_chain(links);
        BinaryOperator op{};
        if (skip_op("*")) {
            op = BinaryOperator::multiply;
        } else if (skip_op("/")) {
            op = BinaryOperator::divide;
        } else if (skip_op("//")) {
            op = BinaryOperator::floor_divide;
        } else if (skip_op("%")) {
            op = BinaryOperator::modulo;
        } else {
            return left;
        }
        left = binary(op, std::move(left), power());
    }
}

ExpressionPtr ExpressionParser::power() {
    ExpressionPtr left = unary();
    for (int links = 0; skip_op("**"); ++links) {  // from the left, unlike Python
        check_chain(links);
        left = binary(BinaryOperator::power, std::move(left), unary());
    }
    return left;
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
    const Nested nested(*this);
    ExpressionPtr value;
    if (current().is_op("-") || current().is_op("+")) {
        const bool negative = next().text == "-";
        ExpressionPtr operand = unary(false);
        value = node<Sign>(all_fixed(operand), std::move(operand), negative);
    } else {
        value = primary();
    }
    value = postfix(std::move(value));
    return with_filters ? filters_and_tests(std::move(value)) : std::move(value);
}

ExpressionPtr ExpressionParser::primary() {
    const Token token = next();
    switch (token.kind) {
        case TokenKind::name:
            return name(token.text);
        case TokenKind::string: {
            std::string text = token.text;
            while (current().kind == TokenKind::string) text += next().text;
            return std::make_unique<Constant>(Value(kept(text)));
        }
        case TokenKind::integer:
        case TokenKind::floating:
            return std::make_unique<Constant>(token.number);
        default:
            break;
    }
    if (token.is_op("(")) {
        ExpressionPtr inner = tuple(true, {}, /*in_parentheses=*/true);
        expect_op(")");
        return inner;
    }
    if (token.is_op("[")) return list();
    if (token.is_op("{")) return dict();
    fail("unexpected '" + described(token) + "'");
}

ExpressionPtr ExpressionParser::name(std::string_view word) {
    if (word == "true" || word == "True") return std::make_unique<Constant>(Value(true));
    if (word == "false" || word == "False") return std::make_unique<Constant>(Value(false));
    if (word == "none" || word == "None") return std::make_unique<Constant>(Value());
    for (MacroCode* macro : open_macros_) {
        if (word == "caller") macro->uses_caller = true;
        if (word == "kwargs") macro->catches_keywords = true;
        if (word == "varargs") macro->catches_positional = true;
    }
    Undefined undefined;
    undefined.name = kept(word);
    auto made = std::make_unique<Name>(undefined.name, symbol_of(word), arena_.make<const Undefined>(undefined));
    scopes_.add(made->reference());
    return made;
}

ExpressionPtr ExpressionParser::list() {
    std::vector<ExpressionPtr> items;
    while (!current().is_op("]")) {
        if (!items.empty()) expect_op(",");
        if (current().is_op("]")) break;
        items.push_back(expression());
    }
    expect_op("]");
    return display(std::move(items), false);
}

ExpressionPtr ExpressionParser::display(std::vector<ExpressionPtr> items, bool is_tuple) {
    Values values(arena_);
    for (const ExpressionPtr& item : items) {
        if (item->constant() == nullptr) return std::make_unique<ListDisplay>(std::move(items), is_tuple);
        values.push_back(*item->constant());
    }
    return std::make_unique<Constant>(is_tuple ? make_tuple(values) : make_list(values));
}

ExpressionPtr ExpressionParser::dict() {
    DictDisplay::Entries entries;
    bool fixed = true;
    while (!current().is_op("}")) {
        if (!entries.empty()) expect_op(",");
        if (current().is_op("}")) break;
        ExpressionPtr key = expression();
        expect_op(":");
        entries.emplace_back(std::move(key), expression());
        fixed = fixed && all_fixed(entries.back().first, entries.back().second);
    }
    expect_op("}");
    return node<DictDisplay>(fixed, std::move(entries));
}

}  // namespace attune::jinja
