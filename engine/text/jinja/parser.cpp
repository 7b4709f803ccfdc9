#include "engine/text/jinja/error.hpp"
#include "engine/text/jinja/statements.hpp"
#include "engine/text/jinja/template.hpp"
#include "engine/text/jinja/token.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>

namespace attune::jinja {
namespace {

/// Nesting of brackets, blocks and operators; deeper templates are refused before they can exhaust the stack.
constexpr int kMaxNesting = 400;
/// Links of one chain (a + b + ..., x | f | g ...): each is one more level of the tree.
constexpr int kMaxChain = 300;

using Words = std::vector<std::string>;

class Parser {
public:
    explicit Parser(std::string_view source) : tokens_(tokenize(source)) {}

    ParsedTemplate parse() {
        ParsedTemplate parsed;
        parsed.body = body_until({});
        parsed.symbols = std::move(symbols_);
        return parsed;
    }

private:
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
    std::string expect_name() {
        if (current().kind != TokenKind::name) expected("name");
        return next().text;
    }
    Symbol symbol_of(const std::string& name) {
        return symbols_.try_emplace(name, static_cast<Symbol>(symbols_.size())).first->second;
    }

    class Nested {
    public:
        explicit Nested(Parser& parser) : parser_(parser) {
            if (++parser_.nesting_ > kMaxNesting) fail("the template is nested too deeply");
        }
        ~Nested() { --parser_.nesting_; }
        Nested(const Nested&) = delete;
        Nested& operator=(const Nested&) = delete;

    private:
        Parser& parser_;
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
        InPlace(Parser& parser, Place place) : parser_(parser), outer_(parser.place_) { parser_.place_ = place; }
        ~InPlace() { parser_.place_ = outer_; }
        InPlace(const InPlace&) = delete;
        InPlace& operator=(const InPlace&) = delete;

    private:
        Parser& parser_;
        Place outer_;
    };

    // ---- statements ----
    /// Statements up to a tag named in `ends`, which is then current. Empty `ends`: to the template's end.
    Body body_until(const Words& ends) {
        const Nested nested(*this);
        Body body;
        while (current().kind != TokenKind::end) {
            if (current().kind == TokenKind::data) {
                body.push_back(std::make_unique<Data>(next().text));
            } else if (current().kind == TokenKind::variable_begin) {
                next();
                body.push_back(std::make_unique<Print>(tuple()));
                expect(TokenKind::variable_end, "end of print statement");
            } else {
                expect(TokenKind::block_begin, "begin of statement block");
                const bool ended = current().kind == TokenKind::name &&
                                   std::find(ends.begin(), ends.end(), current().text) != ends.end();
                if (ended) return body;
                statement(body, ends);
                expect(TokenKind::block_end, "end of statement block");
            }
        }
        if (!ends.empty()) {
            fail("Unexpected end of template. Jinja was looking for the following tags: " + quoted(ends) +
                 ". The innermost block that needs to be closed is '" + open_tags_.back() + "'.");
        }
        return body;
    }
    static std::string quoted(const Words& words) {
        std::string text;
        for (const std::string& word : words) text += (text.empty() ? "'" : " or '") + word + "'";
        return text;
    }
    /// The rest of the opening tag, then its body; the ending tag's name is current afterwards.
    Body block_body(const Words& ends) {
        skip_op(":");
        expect(TokenKind::block_end, "end of statement block");
        return body_until(ends);
    }
    Body closed_body(const char* end) {
        Body body = block_body({end});
        next();
        return body;
    }

    void statement(Body& body, const Words& ends) {
        if (current().kind != TokenKind::name) fail("tag name expected");
        const std::string tag = current().text;
        struct Rule {
            std::string_view tag;
            StatementPtr (Parser::*parse)();
        };
        static constexpr std::array kRules = {
            Rule{"for", &Parser::for_loop},
            Rule{"if", &Parser::if_else},
            Rule{"set", &Parser::set},
            Rule{"macro", &Parser::macro},
            Rule{"call", &Parser::call_block},
            Rule{"filter", &Parser::filter_block},
            Rule{"with", &Parser::with},
            Rule{"block", &Parser::block},
            Rule{"generation", &Parser::generation},
            Rule{"break", &Parser::jump},
            Rule{"continue", &Parser::jump},
            Rule{"autoescape", &Parser::autoescape},
            Rule{"include", &Parser::no_loader},
            Rule{"extends", &Parser::no_loader},
            Rule{"import", &Parser::no_loader},
            Rule{"from", &Parser::no_loader},
        };
        open_tags_.push_back(tag);
        if (tag == "print") {
            print(body);
        } else {
            const auto rule =
                std::find_if(kRules.begin(), kRules.end(), [&](const Rule& candidate) { return candidate.tag == tag; });
            if (rule == kRules.end()) {
                open_tags_.pop_back();
                unknown_tag(tag, ends);
            }
            body.push_back((this->*rule->parse)());
        }
        open_tags_.pop_back();
    }
    [[noreturn]] void unknown_tag(const std::string& tag, const Words& ends) const {
        std::string message = "Encountered unknown tag '" + tag + "'.";
        if (!ends.empty()) message += " Jinja was looking for the following tags: " + quoted(ends) + ".";
        if (!open_tags_.empty()) {
            message += " The innermost block that needs to be closed is '" + open_tags_.back() + "'.";
        }
        fail(message);
    }
    void print(Body& body) {
        next();
        for (bool first = true; current().kind != TokenKind::block_end; first = false) {
            if (!first) expect_op(",");
            body.push_back(std::make_unique<Print>(expression()));
        }
    }
    StatementPtr for_loop() {
        next();
        For::Parts parts;
        parts.target = target(TargetKind::loop);
        if (!skip_name("in")) expected("in");
        parts.iterable = tuple(/*with_condition=*/false, "recursive");
        if (skip_name("if")) parts.test = expression();
        parts.recursive = skip_name("recursive");
        parts.loop = symbol_of("loop");
        {
            const InPlace inside(*this, {false, place_.loops + 1});
            parts.body = block_body({"endfor", "else"});
        }
        if (next().text == "else") {
            const InPlace inside(*this, {false, place_.loops});
            parts.otherwise = closed_body("endfor");
        }
        return std::make_unique<For>(std::move(parts));
    }
    StatementPtr if_else() {
        std::vector<If::Branch> branches;
        std::string tag = next().text;
        while (tag != "endif") {
            check_chain(static_cast<int>(branches.size()));
            If::Branch branch;
            if (tag != "else") branch.test = tuple(/*with_condition=*/false);
            const InPlace inside(*this, {true, place_.loops});
            branch.body = tag == "else" ? block_body({"endif"}) : block_body({"elif", "else", "endif"});
            branches.push_back(std::move(branch));
            tag = next().text;
        }
        return std::make_unique<If>(std::move(branches));
    }
    StatementPtr set() {
        next();
        TargetPtr to = target(TargetKind::set);
        if (skip_op("=")) return std::make_unique<Set>(std::move(to), tuple());
        auto filter = current().is_op("|") ? filters(nullptr) : nullptr;
        const InPlace inside(*this, {false, place_.loops});
        return std::make_unique<SetBlock>(std::move(to), as_filter(std::move(filter)), closed_body("endset"));
    }
    StatementPtr with() {
        next();
        With::Bindings bindings;
        while (current().kind != TokenKind::block_end && !current().is_op(":")) {
            if (!bindings.empty()) expect_op(",");
            TargetPtr to = target(TargetKind::with);
            expect_op("=");
            bindings.emplace_back(std::move(to), expression());
        }
        const InPlace inside(*this, {false, place_.loops});
        return std::make_unique<With>(std::move(bindings), closed_body("endwith"));
    }
    StatementPtr macro() {
        next();
        auto code = std::make_shared<MacroCode>();
        code->name = expect_name();
        const Symbol symbol = symbol_of(code->name);
        signature(*code);
        macro_body(*code, "endmacro");
        return std::make_unique<MacroDefinition>(symbol, std::move(code));
    }
    StatementPtr call_block() {
        next();
        auto caller = std::make_shared<MacroCode>();
        caller->name = "caller";
        if (current().is_op("(")) signature(*caller);
        ExpressionPtr called = expression();
        const auto* call = dynamic_cast<const Call*>(called.get());
        if (call == nullptr) fail("expected call");
        called.release();
        std::unique_ptr<const Call> owned(call);
        macro_body(*caller, "endcall");
        return std::make_unique<CallBlock>(std::move(owned), std::move(caller));
    }
    void signature(MacroCode& code) {
        expect_op("(");
        while (!current().is_op(")")) {
            if (!code.parameters.empty()) expect_op(",");
            Parameter parameter;
            parameter.name = expect_name();
            parameter.symbol = symbol_of(parameter.name);
            if (skip_op("=")) {
                parameter.fallback = expression();
            } else if (!code.parameters.empty() && code.parameters.back().fallback) {
                fail("non-default argument follows default argument");
            }
            code.parameters.push_back(std::move(parameter));
        }
        expect_op(")");
    }
    void macro_body(MacroCode& code, const char* end) {
        code.caller = symbol_of("caller");
        code.kwargs = symbol_of("kwargs");
        code.varargs = symbol_of("varargs");
        open_macros_.push_back(&code);
        const InPlace inside(*this, {false, 0});
        code.body = closed_body(end);
        open_macros_.pop_back();
    }
    StatementPtr filter_block() {
        next();
        ExpressionPtr chain = filters(nullptr, /*starts_with_name=*/true);
        const InPlace inside(*this, {false, place_.loops});
        return std::make_unique<FilterBlock>(as_filter(std::move(chain)), closed_body("endfilter"));
    }
    StatementPtr block() {
        next();
        const std::string name = expect_name();
        bool scoped = skip_name("scoped");
        if (skip_name("required")) scoped = skip_name("scoped") || scoped;
        if (std::find(blocks_.begin(), blocks_.end(), name) != blocks_.end()) {
            throw Failure("TemplateAssertionError", "block '" + name + "' defined twice");
        }
        blocks_.push_back(name);
        const InPlace inside(*this, {false, 0});
        Body body = closed_body("endblock");
        skip_name(name);
        return std::make_unique<Block>(std::move(body), scoped);
    }
    StatementPtr generation() {
        next();
        const InPlace inside(*this, {false, 0});
        return std::make_unique<Block>(closed_body("endgeneration"), true);
    }
    StatementPtr jump() {
        const std::string word = next().text;
        if (place_.loops == 0) {
            throw Failure("SyntaxError", word == "break" ? "'break' outside loop" : "'continue' not properly in loop");
        }
        return std::make_unique<LoopJump>(word == "break" ? Flow::break_loop : Flow::continue_loop);
    }
    StatementPtr autoescape() {
        next();
        ExpressionPtr on = expression();
        const InPlace inside(*this, {false, place_.loops});
        return std::make_unique<Autoescape>(std::move(on), closed_body("endautoescape"));
    }
    StatementPtr no_loader() {
        while (current().kind != TokenKind::block_end && current().kind != TokenKind::end) next();
        return std::make_unique<NoLoader>();
    }

    // ---- targets ----
    enum class TargetKind { set, loop, with };
    TargetPtr target(TargetKind kind) {
        std::vector<TargetPtr> parts;
        bool is_tuple = false;
        while (true) {
            if (!parts.empty()) expect_op(",");
            const bool ended = current().kind == TokenKind::block_end || current().kind == TokenKind::variable_end ||
                               current().is_op(")") || (kind == TargetKind::loop && current().is_name("in"));
            if (ended) break;
            parts.push_back(one_target(kind));
            if (!current().is_op(",")) break;
            is_tuple = true;
        }
        if (parts.empty()) fail("Expected an expression, got '" + described(current()) + "'");
        if (!is_tuple) return std::move(parts[0]);
        return std::make_unique<TupleTarget>(std::move(parts));
    }
    TargetPtr one_target(TargetKind kind) {
        const Nested nested(*this);
        if (skip_op("(")) {
            TargetPtr inner = target(kind);
            expect_op(")");
            return inner;
        }
        if (current().kind != TokenKind::name) fail("can't assign to '" + described(current()) + "'");
        const std::string name = next().text;
        constexpr std::array<std::string_view, 6> kConstants = {"true", "false", "True", "False", "none", "None"};
        if (std::find(kConstants.begin(), kConstants.end(), name) != kConstants.end()) fail("can't assign to 'const'");
        if (kind == TargetKind::set && skip_op(".")) {
            return std::make_unique<NamespaceTarget>(symbol_of(name), expect_name());
        }
        return std::make_unique<NameTarget>(symbol_of(name));
    }

    // ---- expressions, weakest binding first ----
    ExpressionPtr expression() { return conditional(); }

    ExpressionPtr tuple(bool with_condition = true, std::string_view end_word = {}, bool in_parentheses = false) {
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
        return std::make_unique<ListDisplay>(std::move(items), true);
    }
    ExpressionPtr conditional() {
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
    /// Whether `if` follows before this expression ends.
    bool has_inline_if() const {
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
    ExpressionPtr logical_or() {
        ExpressionPtr left = logical_and();
        for (int links = 0; skip_name("or"); ++links) {
            check_chain(links);
            left = std::make_unique<Logical>(std::move(left), logical_and(), false);
        }
        return left;
    }
    ExpressionPtr logical_and() {
        ExpressionPtr left = logical_not();
        for (int links = 0; skip_name("and"); ++links) {
            check_chain(links);
            left = std::make_unique<Logical>(std::move(left), logical_not(), true);
        }
        return left;
    }
    ExpressionPtr logical_not() {
        const Nested nested(*this);
        if (skip_name("not")) return std::make_unique<Not>(logical_not());
        return comparison();
    }
    std::optional<Comparison> comparison_operator() {
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
    ExpressionPtr comparison() {
        ExpressionPtr first = sum();
        Compare::Operands rest;
        while (const auto comparison = comparison_operator()) {
            check_chain(static_cast<int>(rest.size()));
            rest.emplace_back(*comparison, sum());
        }
        if (rest.empty()) return first;
        return std::make_unique<Compare>(std::move(first), std::move(rest));
    }
    ExpressionPtr sum() {
        ExpressionPtr left = concatenation();
        for (int links = 0; current().is_op("+") || current().is_op("-"); ++links) {
            check_chain(links);
            const auto op = next().text == "+" ? BinaryOperator::add : BinaryOperator::subtract;
            left = std::make_unique<Binary>(op, std::move(left), concatenation());
        }
        return left;
    }
    ExpressionPtr concatenation() {
        std::vector<ExpressionPtr> parts;
        parts.push_back(product());
        while (skip_op("~")) parts.push_back(product());
        if (parts.size() == 1) return std::move(parts[0]);
        return std::make_unique<Concatenation>(std::move(parts));
    }
    ExpressionPtr product() {
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
    ExpressionPtr power() {
        ExpressionPtr left = unary();
        for (int links = 0; skip_op("**"); ++links) {  // from the left, unlike Python
            check_chain(links);
            left = std::make_unique<Binary>(BinaryOperator::power, std::move(left), unary());
        }
        return left;
    }
    ExpressionPtr unary(bool with_filters = true) {
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
    ExpressionPtr primary() {
        const Token token = next();
        switch (token.kind) {
            case TokenKind::name:
                return name(token.text);
            case TokenKind::string: {
                std::string text = token.text;
                while (current().kind == TokenKind::string) text += next().text;
                return std::make_unique<Constant>(Value(std::move(text)));
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
    ExpressionPtr name(const std::string& word) {
        if (word == "true" || word == "True") return std::make_unique<Constant>(Value(true));
        if (word == "false" || word == "False") return std::make_unique<Constant>(Value(false));
        if (word == "none" || word == "None") return std::make_unique<Constant>(Value());
        for (MacroCode* macro : open_macros_) {
            if (word == "caller") macro->uses_caller = true;
            if (word == "kwargs") macro->catches_keywords = true;
            if (word == "varargs") macro->catches_positional = true;
        }
        return std::make_unique<Name>(word, symbol_of(word));
    }
    ExpressionPtr list() {
        std::vector<ExpressionPtr> items;
        while (!current().is_op("]")) {
            if (!items.empty()) expect_op(",");
            if (current().is_op("]")) break;
            items.push_back(expression());
        }
        expect_op("]");
        return std::make_unique<ListDisplay>(std::move(items), false);
    }
    ExpressionPtr dict() {
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
    ExpressionPtr postfix(ExpressionPtr value) {
        for (int links = 0;; ++links) {
            check_chain(links);
            if (skip_op(".")) {
                const Token attribute = next();
                if (attribute.kind == TokenKind::name) {
                    value = std::make_unique<Attribute>(std::move(value), attribute.text);
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
    ExpressionPtr subscript(ExpressionPtr value) {
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
    CallArguments call_arguments() {
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
                std::string name = next().text;
                next();
                arguments.keyword.emplace_back(std::move(name), expression());
            } else {
                ensure(!arguments.star && !arguments.star_star && arguments.keyword.empty());
                arguments.positional.push_back(expression());
            }
        }
        expect_op(")");
        return arguments;
    }
    ExpressionPtr filters_and_tests(ExpressionPtr value) {
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
    std::string dotted_name() {
        std::string name = expect_name();
        while (skip_op(".")) name += "." + expect_name();
        return name;
    }
    ExpressionPtr filters(ExpressionPtr value, bool starts_with_name = false) {
        for (int links = 0; starts_with_name || current().is_op("|"); ++links) {
            check_chain(links);
            if (!starts_with_name) next();
            starts_with_name = false;
            std::string name = dotted_name();
            CallArguments arguments;
            if (current().is_op("(")) arguments = call_arguments();
            const Filter filter = find_filter(name);
            if (filter == nullptr && !place_.soft) {
                throw Failure("TemplateAssertionError", "No filter named '" + name + "'.");
            }
            value = std::make_unique<FilterCall>(std::move(value), std::move(name), filter, std::move(arguments));
        }
        return value;
    }
    static std::unique_ptr<const FilterCall> as_filter(ExpressionPtr chain) {
        return std::unique_ptr<const FilterCall>(static_cast<const FilterCall*>(chain.release()));
    }
    ExpressionPtr test(ExpressionPtr value) {
        next();
        const bool negated = skip_name("not");
        std::string name = dotted_name();
        CallArguments arguments;
        const TokenKind kind = current().kind;
        const bool word = kind == TokenKind::name && !current().is_name("else") && !current().is_name("or") &&
                          !current().is_name("and");
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
            throw Failure("TemplateAssertionError", "No test named '" + name + "'.");
        }
        value = std::make_unique<TestCall>(std::move(value), std::move(name), found, std::move(arguments));
        if (negated) value = std::make_unique<Not>(std::move(value));
        return value;
    }

    std::vector<Token> tokens_;
    std::size_t at_ = 0;
    int nesting_ = 0;
    Place place_;
    std::unordered_map<std::string, Symbol> symbols_;
    std::vector<std::string> open_tags_;
    std::vector<MacroCode*> open_macros_;
    std::vector<std::string> blocks_;
};

}  // namespace

ParsedTemplate parse_template(std::string_view source) { return Parser(source).parse(); }

}  // namespace attune::jinja
