#include "engine/text/jinja/expression_parser.hpp"
#include "engine/text/jinja/statements.hpp"
#include "engine/text/jinja/template.hpp"

#include <algorithm>
#include <array>

namespace attune::jinja {
namespace {

using Words = std::vector<std::string>;

class Parser final : public ExpressionParser {
public:
    Parser(Arena& arena, std::string_view source)
        : ExpressionParser(arena, source), may_escape_(source.find("autoescape") != std::string_view::npos) {}

    ParsedTemplate parse() {
        ParsedTemplate parsed;
        parsed.body = body_until({});
        scopes_.resolve_all();
        parsed.symbols = std::move(symbols_);
        return parsed;
    }

private:
    // ---- statements ----
    /// Statements up to a tag named in `ends`, which is then current. Empty `ends`: to the template's end.
    Body body_until(const Words& ends) {
        const Nested nested(*this);
        Body body;
        Data* data = nullptr;  // the last of the body, if it is one: what follows joins it
        const auto add_data = [&](std::string_view text) {
            if (data == nullptr) {
                auto made = std::make_unique<Data>();
                data = made.get();
                body.push_back(std::move(made));
            }
            data->append(text);
        };
        while (current().kind != TokenKind::end) {
            if (current().kind == TokenKind::data) {
                add_data(next().text);
            } else if (current().kind == TokenKind::variable_begin) {
                next();
                ExpressionPtr value = folder_.shown(tuple());
                expect(TokenKind::variable_end, "end of print statement");
                const Value* constant = value->constant();
                if (!may_escape_ && constant != nullptr && constant->is_text()) {
                    add_data(constant->bytes());
                } else {
                    data = nullptr;
                    body.push_back(std::make_unique<Print>(std::move(value)));
                }
            } else {
                data = nullptr;
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
            body.push_back(std::make_unique<Print>(folder_.shown(expression())));
        }
    }
    StatementPtr for_loop() {
        next();
        For::Parts parts;
        const int closures_before = closures_;
        BlockScope& test_scope = scopes_.open(scopes_.current());
        {
            const BlockScopes::Inside inside(scopes_, test_scope);
            parts.target = target(TargetKind::loop);
        }
        if (!skip_name("in")) expected("in");
        parts.iterable = tuple(/*with_condition=*/false, "recursive");
        // The same slots for the target in the test and in the body.
        BlockScope& body_scope = scopes_.open_copy(test_scope);
        if (skip_name("if")) {
            const BlockScopes::Inside inside(scopes_, test_scope);
            parts.test = expression();
        }
        parts.recursive = skip_name("recursive");
        parts.loop = body_scope.slot_of(symbol_of("loop"));
        {
            const BlockScopes::Inside inside(scopes_, body_scope);
            const InPlace place(*this, {false, place_.loops + 1});
            parts.body = block_body({"endfor", "else"});
        }
        if (next().text == "else") {
            BlockScope& else_scope = scopes_.open(scopes_.current());
            const BlockScopes::Inside inside(scopes_, else_scope);
            const InPlace place(*this, {false, place_.loops});
            parts.otherwise = closed_body("endfor");
            parts.otherwise_slots = else_scope.slots();
        }
        parts.test_slots = test_scope.slots();
        parts.body_slots = body_scope.slots();
        parts.keeps_frames = closures_ != closures_before;
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
    /// A body that has a scope of its own.
    struct ScopedBody {
        Body body;
        std::size_t slots = 0;
    };
    ScopedBody scoped_body(const char* end, BlockScope& scope, Place place) {
        const BlockScopes::Inside inside(scopes_, scope);
        const InPlace in_place(*this, place);
        Body body = closed_body(end);
        return {std::move(body), scope.slots()};
    }
    ScopedBody scoped_body(const char* end) {
        return scoped_body(end, scopes_.open(scopes_.current()), {false, place_.loops});
    }
    StatementPtr set() {
        next();
        TargetPtr to = target(TargetKind::set);
        if (skip_op("=")) return std::make_unique<Set>(std::move(to), tuple());
        auto filter = current().is_op("|") ? filters(nullptr) : nullptr;
        auto [body, slots] = scoped_body("endset");
        return std::make_unique<SetBlock>(std::move(to), as_filter(std::move(filter)), std::move(body), slots);
    }
    StatementPtr with() {
        next();
        With::Bindings bindings;
        BlockScope& scope = scopes_.open(scopes_.current());
        while (current().kind != TokenKind::block_end && !current().is_op(":")) {
            if (!bindings.empty()) expect_op(",");
            TargetPtr to;
            {
                const BlockScopes::Inside inside(scopes_, scope);
                to = target(TargetKind::with);
            }
            expect_op("=");
            bindings.emplace_back(std::move(to), expression());
        }
        auto [body, slots] = scoped_body("endwith", scope, {false, place_.loops});
        return std::make_unique<With>(std::move(bindings), std::move(body), slots);
    }
    StatementPtr macro() {
        next();
        auto code = std::make_unique<MacroCode>();
        code->name = expect_name();
        const int slot = scopes_.current().slot_of(symbol_of(code->name));
        BlockScope& scope = scopes_.open(scopes_.current());
        signature(*code, scope);
        macro_body(*code, scope, "endmacro");
        return std::make_unique<MacroDefinition>(slot, std::move(code));
    }
    StatementPtr call_block() {
        next();
        auto caller = std::make_unique<MacroCode>();
        caller->name = "caller";
        BlockScope& scope = scopes_.open(scopes_.current());
        if (current().is_op("(")) signature(*caller, scope);
        folds_calls_ = false;  // the block becomes one of its arguments
        ExpressionPtr called = expression();
        folds_calls_ = true;
        const auto* call = dynamic_cast<const Call*>(called.get());
        if (call == nullptr) fail("expected call");
        called.release();
        std::unique_ptr<const Call> owned(call);
        macro_body(*caller, scope, "endcall");
        return std::make_unique<CallBlock>(std::move(owned), std::move(caller));
    }
    void signature(MacroCode& code, BlockScope& scope) {
        const BlockScopes::Inside inside(scopes_, scope);
        expect_op("(");
        while (!current().is_op(")")) {
            if (!code.parameters.empty()) expect_op(",");
            Parameter parameter;
            parameter.name = expect_name();
            parameter.slot = scope.slot_of(symbol_of(parameter.name));
            if (skip_op("=")) {
                parameter.fallback = expression();
            } else if (!code.parameters.empty() && code.parameters.back().fallback) {
                fail("non-default argument follows default argument");
            }
            code.parameters.push_back(std::move(parameter));
        }
        expect_op(")");
    }
    void macro_body(MacroCode& code, BlockScope& scope, const char* end) {
        ++closures_;
        code.caller = scope.slot_of(symbol_of("caller"));
        code.kwargs = scope.slot_of(symbol_of("kwargs"));
        code.varargs = scope.slot_of(symbol_of("varargs"));
        open_macros_.push_back(&code);
        auto [body, slots] = scoped_body(end, scope, {false, 0});
        code.body = std::move(body);
        code.slots = slots;
        open_macros_.pop_back();
    }
    StatementPtr filter_block() {
        next();
        ExpressionPtr chain = filters(nullptr, /*starts_with_name=*/true);
        auto [body, slots] = scoped_body("endfilter");
        return std::make_unique<FilterBlock>(as_filter(std::move(chain)), std::move(body), slots);
    }
    StatementPtr block() {
        next();
        const std::string_view name = expect_name();
        bool scoped = skip_name("scoped");
        if (skip_name("required")) scoped = skip_name("scoped") || scoped;
        if (std::find(blocks_.begin(), blocks_.end(), name) != blocks_.end()) {
            throw Failure("TemplateAssertionError", "block '" + std::string(name) + "' defined twice");
        }
        blocks_.push_back(name);
        BlockScope& around = scoped ? scopes_.current() : scopes_.outermost();
        auto [body, slots] = scoped_body("endblock", scopes_.open(around), {false, 0});
        skip_name(name);
        return std::make_unique<Block>(std::move(body), slots, scoped);
    }
    StatementPtr generation() {
        next();
        auto [body, slots] = scoped_body("endgeneration", scopes_.open(scopes_.current()), {false, 0});
        return std::make_unique<Block>(std::move(body), slots, true);
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
        auto [body, slots] = scoped_body("endautoescape");
        return std::make_unique<Autoescape>(std::move(on), std::move(body), slots);
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
        const std::string_view name = kept(next().text);
        constexpr std::array<std::string_view, 6> kConstants = {"true", "false", "True", "False", "none", "None"};
        if (std::find(kConstants.begin(), kConstants.end(), name) != kConstants.end()) fail("can't assign to 'const'");
        if (kind == TargetKind::set && skip_op(".")) {
            auto made = std::make_unique<NamespaceTarget>(name, symbol_of(name), expect_name());
            scopes_.add(made->reference());
            return made;
        }
        return std::make_unique<NameTarget>(scopes_.current().slot_of(symbol_of(name)));
    }

    const bool may_escape_;  // an autoescape block may reach any constant, through macros
    std::vector<std::string> open_tags_;
    std::vector<std::string_view> blocks_;
    int closures_ = 0;  // macros and call blocks so far
};

}  // namespace

ParsedTemplate parse_template(Arena& arena, std::string_view source) { return Parser(arena, source).parse(); }

}  // namespace attune::jinja
