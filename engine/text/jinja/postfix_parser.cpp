// What follows an operand: attributes, items, calls, filters and tests.
#include "engine/text/jinja/expression_parser.hpp"

namespace attune::jinja {

ExpressionPtr ExpressionParser::postfix(ExpressionPtr value) {
    for (int links = 0;; ++links) {
        check_chain(links);
        if (skip_op(".")) {
            const Token attribute = next();
            if (attribute.kind == TokenKind::name) {
                value = node<Attribute>(all_fixed(value), std::move(value), kept(attribute.text));
            } else if (attribute.kind == TokenKind::integer) {
                value = node<Item>(all_fixed(value), std::move(value), std::make_unique<Constant>(attribute.number));
            } else {
                fail("expected name or number");
            }
        } else if (skip_op("[")) {
            value = subscript(std::move(value));
        } else if (current().is_op("(")) {
            value = call(std::move(value));
        } else {
            return value;
        }
    }
}

ExpressionPtr ExpressionParser::call(ExpressionPtr callee) {
    CallArguments arguments = call_arguments();
    const bool fixed = folds_calls_ && all_fixed(callee) && arguments.are_fixed();
    return node<Call>(fixed, std::move(callee), std::move(arguments));
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr value) {
    ExpressionPtr start;
    if (!current().is_op(":")) {
        start = expression();
        if (current().is_op(",")) {
            std::vector<ExpressionPtr> keys;
            keys.push_back(std::move(start));
            while (skip_op(",")) keys.push_back(expression());
            start = display(std::move(keys), true);
        }
        if (skip_op("]")) {
            const bool fixed = all_fixed(value, start);
            return node<Item>(fixed, std::move(value), std::move(start));
        }
    }
    expect_op(":");
    ExpressionPtr stop;
    ExpressionPtr step;
    if (!current().is_op(":") && !current().is_op("]")) stop = expression();
    if (skip_op(":") && !current().is_op("]")) step = expression();
    expect_op("]");
    const bool fixed = all_fixed(value, start, stop, step);
    return node<SliceItem>(fixed, std::move(value), std::move(start), std::move(stop), std::move(step));
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
            value = call(std::move(value));
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
        // A filter block's chain begins without a subject.
        const bool fixed = value && all_fixed(value) && arguments.are_fixed();
        value = node<FilterCall>(fixed, std::move(value), name, filter, std::move(arguments));
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
    const bool fixed = all_fixed(value) && arguments.are_fixed();
    value = node<TestCall>(fixed, std::move(value), name, found, std::move(arguments));
    return negated ? node<Not>(all_fixed(value), std::move(value)) : std::move(value);
}

}  // namespace attune::jinja
