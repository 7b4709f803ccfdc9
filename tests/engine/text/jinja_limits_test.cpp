#include "engine/text/jinja/template.hpp"

#include <catch2/catch.hpp>

#include <string>

namespace attune {
namespace {

/// The type of the error that the template ends in, or its text.
std::string outcome_of(const std::string& source) {
    auto parsed = jinja::Template::parse(source);
    if (const auto* error = std::get_if<jinja::TemplateError>(&parsed)) return error->type;
    jinja::Arena arena;
    const auto rendered = std::get<jinja::Template>(parsed).render(arena, {}, {});
    if (const auto* error = std::get_if<jinja::TemplateError>(&rendered)) return error->type;
    return std::string(std::get<jinja::Text>(rendered).bytes());
}

std::string repeated(const std::string& text, int times) {
    std::string out;
    for (int i = 0; i < times; ++i) out += text;
    return out;
}

}  // namespace

TEST_CASE("a template that does not end runs out of steps", "[engine][text][jinja][E9]") {
    // So many turns of the loop do what a rendering may do; template_bench measures how long that takes.
    struct Case {
        const char* body;
        int some;      // turns that fit
        int too_many;  // turns that do not
    };
    const Case one = GENERATE(Case{"{% for b in range(100000) %}{% endfor %}", 5, 20},
                              Case{"{% for b in range(100000) %}x{% endfor %}", 3, 10},
                              Case{"{% set x = range(100000) | list | sort %}", 1, 40},
                              Case{"{{ (word * 100000) | upper | length }}", 10, 60},
                              Case{"{% set x = range(99999) | map('string') | join(',') %}", 1, 40},
                              Case{"{% if 'b' in 'a' * 10000000 %}{% endif %}", 1, 10});
    INFO(one.body);
    const auto turns = [&](int count) {
        return outcome_of("{% set word = 'ab' %}{% for a in range(" + std::to_string(count) + ") %}" + one.body +
                          "{% endfor %}");
    };
    CHECK(turns(one.some).find("Error") == std::string::npos);
    for (const int count : {one.too_many, 100'000}) {
        const std::string outcome = turns(count);
        CHECK((outcome == "TimeoutError" || outcome == "OverflowError"));
    }
}

TEST_CASE("texts and lists cannot grow without bound", "[engine][text][jinja]") {
    CHECK(outcome_of("{{ 'x' * 100000000000 }}") == "OverflowError");
    CHECK(outcome_of("{{ [0] * 100000000000 }}") == "OverflowError");
    CHECK(outcome_of(
              "{% set ns = namespace(x='ab') %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}") ==
          "OverflowError");
    CHECK(outcome_of("{{ '%1000000000d' % 1 }}") == "ValueError");
    CHECK(outcome_of("{{ '{:1000000000}'.format(1) }}") == "ValueError");
    CHECK(outcome_of("{{ 'x'.ljust(10000000000) }}") == "OverflowError");
    CHECK(outcome_of("{{ 10 ** 1000 }}") == "OverflowError");
    CHECK(outcome_of("{{ range(100001) | list }}") == "OverflowError");
    CHECK(outcome_of("{{ range(-9223372036854775807, 9223372036854775807, 1) }}") == "OverflowError");
}

TEST_CASE("a rendering's memory has a bound of its own", "[engine][text][jinja]") {
    const auto parsed =
        jinja::Template::parse("{% set ab = 'ab' %}{% for i in range(1000) %}{% set x = ab * 1000 %}{% endfor %}done");
    const auto& code = std::get<jinja::Template>(parsed);
    jinja::Arena enough;
    CHECK(std::holds_alternative<jinja::Text>(code.render(enough, {}, {})));
    jinja::Arena small(std::size_t{1} << 20);
    const auto rendered = code.render(small, {}, {});
    REQUIRE(std::holds_alternative<jinja::TemplateError>(rendered));
    CHECK(std::get<jinja::TemplateError>(rendered).type == "OverflowError");
}

TEST_CASE("names lead to the innermost block that has assigned them", "[engine][text][jinja]") {
    // A slot that is not assigned yet leaves the name to the blocks around.
    CHECK(outcome_of("{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}") ==
          "12121");
    CHECK(outcome_of("{% macro m() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}") == "1");
    CHECK(outcome_of("{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}") == "12");
    CHECK(outcome_of("{% for i in [3, 4] if i > 3 %}{{ loop.index }}{{ i }}{% endfor %}") == "14");
}

TEST_CASE("a template that is not UTF-8 is refused", "[engine][text][jinja]") {
    for (const std::string bad : {"\xFF", "\xA0\xA0", "\xC3", "\xE2\x80"})
        CHECK(outcome_of("{{ 'a' }}" + bad + "{%- if 1 %}{% endif %}") == "UnicodeDecodeError");
}

TEST_CASE("recursion and nesting end in an error", "[engine][text][jinja][E4]") {
    CHECK(outcome_of("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}") == "RecursionError");
    CHECK(outcome_of("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}") == "RecursionError");
    CHECK(outcome_of("{{ " + repeated("(", 5000) + "1" + repeated(")", 5000) + " }}") == "TemplateSyntaxError");
    CHECK(outcome_of("{{ " + repeated("[", 5000) + repeated("]", 5000) + " }}") == "TemplateSyntaxError");
    CHECK(outcome_of("{{ " + repeated("not ", 5000) + "1 }}") == "TemplateSyntaxError");
    CHECK(outcome_of("{{ 1" + repeated(" + 1", 5000) + " }}") == "TemplateSyntaxError");
    CHECK(outcome_of("{{ 1" + repeated("|abs", 5000) + " }}") == "TemplateSyntaxError");
    CHECK(outcome_of(repeated("{% if 1 %}", 5000) + repeated("{% endif %}", 5000)) == "TemplateSyntaxError");
    CHECK(
        outcome_of(
            "{% set ns = namespace(x=[]) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}") ==
        "RecursionError");
}

TEST_CASE("a namespace that holds itself neither loops nor leaks", "[engine][text][jinja]") {
    const std::string text = outcome_of("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns.me.me is defined }}");
    CHECK(text == "True");
    CHECK(outcome_of("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns | string | length > 5 }}") == "True");
    CHECK(outcome_of("{% set ns = namespace() %}{% macro m() %}{{ ns }}{% endmacro %}{% set ns.m = m %}{{ ns.m is "
                     "callable }}") == "True");
}

TEST_CASE("a macro kept beyond its loop still sees the loop's names", "[engine][text][jinja]") {
    CHECK(outcome_of("{% set ns = namespace(m=none) %}{% for i in [7] %}{% macro m() %}{{ i }}{% endmacro %}"
                     "{% set ns.m = m %}{% endfor %}{{ ns.m() }}") == "7");
}

TEST_CASE("one parsed template renders many times with the same result", "[engine][text][jinja]") {
    auto parsed = jinja::Template::parse("{% set ns = namespace(n=0) %}{% set ns.n = ns.n + 1 %}{{ ns.n }}{{ x }}");
    REQUIRE(std::holds_alternative<jinja::Template>(parsed));
    const auto& code = std::get<jinja::Template>(parsed);
    for (int i = 0; i < 3; ++i) {
        jinja::Arena arena;
        const jinja::Variable x{"x", jinja::Value(i)};
        const auto rendered = code.render(arena, {&x, 1}, {});
        CHECK(std::get<jinja::Text>(rendered).bytes() == "1" + std::to_string(i));
    }
}

}  // namespace attune
