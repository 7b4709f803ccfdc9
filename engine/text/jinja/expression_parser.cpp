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
        value = std::make_unique<Conditional>(std::move(test), std::move(value), std::move(otherwise));
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
        left = std::make_unique<Logical>(std::move(left), logical_and(), false);
    }
    return left;
}

ExpressionPtr ExpressionParser::logical_and() {
    ExpressionPtr left = logical_not();
    for (int links = 0; skip_name("and"); ++links) {
        check_chain(links);
        left = std::make_unique<Logical>(std::move(left), logical_not(), true);
    }
    return left;
}

ExpressionPtr ExpressionParser::logical_not() {
    const Nested nested(*this);
    if (skip_name("not")) return std::make_unique<Not>(logical_not());
    return comparison();
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
    while (const auto comparison = comparison_operator()) {
        check_chain(static_cast<int>(rest.size()));
        rest.emplace_back(*comparison, sum());
    }
    if (rest.empty()) return first;
    return std::make_unique<Compare>(std::move(first), std::move(rest));
}

ExpressionPtr ExpressionParser::sum() {
    ExpressionPtr left = concatenation();
    std::vector<ExpressionPtr> added;  // a + b + ...: one node
    const auto finish_sum = [&] {
        if (!added.empty()) left = std::make_unique<Sum>(std::exchange(added, {}));
    };
    for (int links = 0; current().is_op("+") || current().is_op("-"); ++links) {
        check_chain(links);
        if (next().text == "+") {
            if (added.empty()) added.push_back(std::move(left));
            added.push_back(concatenation());
        } else {
            finish_sum();
            left = std::make_unique<Binary>(BinaryOperator::subtract, std::move(left), concatenation());
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
    return std::make_unique<Concatenation>(std::move(parts));
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
        left = std::make_unique<Binary>(op, std::move(left), power());
    }
}

ExpressionPtr ExpressionParser::power() {
    ExpressionPtr left = unary();
    for (int links = 0; skip_op("**"); ++links) {  // from the left, unlike Python
        check_chain(links);
        left = std::make_unique<Binary>(BinaryOperator::power, std::move(left), unary());
    }
    return left;
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
    const Nested nested(*this);
    ExpressionPtr value;
    if (skip_op("-")) {
        value = std::make_unique<Sign>(unary(false), true);
    } else if (skip_op("+")) {
        value = std::make_unique<Sign>(unary(false), false);
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
    while (!current().is_op("}")) {
        if (!entries.empty()) expect_op(",");
        if (current().is_op("}")) break;
        ExpressionPtr key = expression();
        expect_op(":");
        entries.emplace_back(std::move(key), expression());
    }
    expect_op("}");
    return std::make_unique<DictDisplay>(std::move(entries));
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr value) {
    for (int links = 0;; ++links) {
        check_chain(links);
        if (skip_op(".")) {
            const Token attribute = next();
            if (attribute.kind == TokenKind::name) {
                value = std::make_unique<Attribute>(std::move(value), kept(attribute.text));
            } else if (attribute.kind == TokenKind::integer) {
                value = std::make_unique<Item>(std::move(value), std::make_unique<Constant>(attribute.number));
            } else {
                fail("expected name or number");
            }
        } else if (skip_op("[")) {
            value = subscript(std::move(value));
        } else if (current().is_op("(")) {
            value = std::make_unique<Call>(std::move(value), call_arguments());
        } else {
            return value;
        }
    }
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr value) {
    ExpressionPtr start;
    if (!current().is_op(":")) {
        start = expression();
        if (current().is_op(",")) {
            std::vector<ExpressionPtr> keys;
            keys.push_back(std::move(start));
            while (skip_op(",")) keys.push_back(expression());
            start = std::make_unique<ListDisplay>(std::move(keys), true);
        }
        if (skip_op("]")) return std::make_unique<Item>(std::move(value), std::move(start));
    }
    expect_op(":");
    ExpressionPtr stop;
    ExpressionPtr step;
    if (!current().is_op(":") && !current().is_op("]")) stop = expression();
    if (skip_op(":") && !current().is_op("]")) step = expression();
    expect_op("]");
    return std::make_unique<SliceItem>(std::move(value), std::move(start), std::move(stop), std::move(step));
}

CallArguments ExpressionParser::call_arguments() {
    expect_op("(");
    CallArguments arguments;
    bool first = true;
    const auto ensure = [](bool right) {
        if (!right) fail("invalid syntax for function call expression");
    };
    while (!current().is_op(")")) {
        if (!first) {
            expect_op(",");
            if (current().is_op(")")) break;
        }
        first = false;
        if (skip_op("*")) {
            ensure(!arguments.star && !arguments.star_star);
            arguments.star = expression();
        } else if (skip_op("**")) {
            ensure(!arguments.star_star);
            arguments.star_star = expression();
        } else if (current().kind == TokenKind::name && look().is_op("=")) {
            ensure(!arguments.star_star);
            const std::string_view name = kept(next().text);
            next();
            arguments.keyword.emplace_back(name, expression());
        } else {
            ensure(!arguments.star && !arguments.star_star && arguments.keyword.empty());
            arguments.positional.push_back(expression());
        }
    }
    expect_op(")");
    return arguments;
}

ExpressionPtr ExpressionParser::filters_and_tests(ExpressionPtr value) {
    for (int links = 0;; ++links) {
        check_chain(links);
        if (current().is_op("|")) {
            value = filters(std::move(value));
        } else if (current().is_name("is")) {
            value = test(std::move(value));
        } else if (current().is_op("(")) {
            value = std::make_unique<Call>(std::move(value), call_arguments());
        } else {
            return value;
        }
    }
}

std::string_view ExpressionParser::dotted_name() {
    std::string name(expect_name());
    while (skip_op(".")) name += "." + std::string(expect_name());
    return kept(name);
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr value, bool starts_with_name) {
    for (int links = 0; starts_with_name || current().is_op("|"); ++links) {
        check_chain(links);
        if (!starts_with_name) next();
        starts_with_name = false;
        const std::string_view name = dotted_name();
        CallArguments arguments;
        if (current().is_op("(")) arguments = call_arguments();
        const Filter filter = find_filter(name);
        if (filter == nullptr && !place_.soft) {
            throw Failure("TemplateAssertionError", "No filter named '" + std::string(name) + "'.");
        }
        value = std::make_unique<FilterCall>(std::move(value), name, filter, std::move(arguments));
    }
    return value;
}

std::unique_ptr<const FilterCall> ExpressionParser::as_filter(ExpressionPtr chain) {
    return std::unique_ptr<const FilterCall>(static_cast<const FilterCall*>(chain.release()));
}

ExpressionPtr ExpressionParser::test(ExpressionPtr value) {
    next();
    const bool negated = skip_name("not");
    const std::string_view name = dotted_name();
    CallArguments arguments;
    const TokenKind kind = current().kind;
    const bool word =
        kind == TokenKind::name && !current().is_name("else") && !current().is_name("or") && !current().is_name("and");
    const bool operand = word || kind == TokenKind::string || kind == TokenKind::integer ||
                         kind == TokenKind::floating || current().is_op("[") || current().is_op("{");
    if (current().is_op("(")) {
        arguments = call_arguments();
    } else if (operand) {
        if (current().is_name("is")) fail("You cannot chain multiple tests with is");
        const Nested nested(*this);
        arguments.positional.push_back(postfix(primary()));
    }
    const Test found = find_test(name);
    if (found == nullptr && !place_.soft) {
        throw Failure("TemplateAssertionError", "No test named '" + std::string(name) + "'.");
    }
    value = std::make_unique<TestCall>(std::move(value), name, found, std::move(arguments));
    if (negated) value = std::make_unique<Not>(std::move(value));
    return value;
}

}  // namespace attune::jinja
