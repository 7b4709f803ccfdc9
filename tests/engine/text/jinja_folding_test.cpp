// Work on constants is done once, while a template is parsed: what it gives must not change, and how it fails neither.
#include "engine/text/jinja/template.hpp"

#include <catch2/catch.hpp>

#include <string>

namespace attune {
namespace {

/// "Type: message" of the error that the template ends in, or its text. `steps`: what the rendering may take.
std::string outcome_of(const std::string& source, std::int64_t steps = 2'000'000) {
    const auto said = [](const jinja::TemplateError& error) { return error.type + ": " + error.message; };
    const auto parsed = jinja::Template::parse(source);
    if (const auto* error = std::get_if<jinja::TemplateError>(&parsed)) return "at once, " + said(*error);
    jinja::Arena arena;
    const auto rendered = std::get<jinja::Template>(parsed).render(arena, {}, {}, {.steps = steps});
    if (const auto* error = std::get_if<jinja::TemplateError>(&rendered)) return said(*error);
    return std::string(std::get<jinja::Text>(rendered).bytes());
}

}  // namespace

TEST_CASE("work on constants costs a rendering nothing", "[engine][text][jinja][folding]") {
    // One step for the statement.
    for (const char* one :
         {"{{ 1 + 2 * 3 - 4 // 3 }}", "{{ {'a': [1, (2, 'x')]}['a'][1] }}", "{{ 'ab'.upper().lower() }}",
          "{{ ['b', 'a'] | sort | join('-') }}", "{{ [1, 2, 3] | map('string') | list }}",
          "{{ 1 if 'a' in 'abc' else 2 }}", "{{ not (1 < 2 < 3) or 'x' is string }}", "{{ 'x' ~ 1 ~ none }}",
          "{{ -(3 | abs) }}", "{{ [1.5, 2e22, none, 'it\\'s'] }}", "{{ '%s-%d' % ('a', 3) }}", "{{ 'abc'[1:] }}"}) {
        INFO(one);
        CHECK(outcome_of(one, 1) == outcome_of(one));
        CHECK(outcome_of(one).find("Error") == std::string::npos);
    }
    CHECK(outcome_of("{% set x = 3 %}{{ x + 1 }}", 1) == "TimeoutError: the template takes too many steps");
}

TEST_CASE("what fails on constants fails only where it is reached", "[engine][text][jinja][folding]") {
    CHECK(outcome_of("a{{ 1 / 0 }}") == "ZeroDivisionError: division by zero");
    CHECK(outcome_of("{% if x %}{{ 1 / 0 }}{{ 'a' + 1 }}{{ none.x.y }}{{ [1] | first | join | nosuch }}{% endif %}b") ==
          "b");
    CHECK(outcome_of("{{ 1 if true else 1 / 0 }}") == "1");
    CHECK(outcome_of("{{ 'x' * 10000000000 }}").starts_with("OverflowError"));
    CHECK(outcome_of("{% call 'x'.upper() %}{% endcall %}").starts_with("TypeError"));
}

TEST_CASE("constants know nothing of the block that they stand in", "[engine][text][jinja][folding]") {
    CHECK(outcome_of(
              "{% autoescape true %}{{ '<' }}{{ ['<'] }}{{ '<' ~ '>' }}{{ '<' | safe }}{% endautoescape %}{{ '<' }}") ==
          "&lt;[&#39;&lt;&#39;]&lt;&gt;<<");
    CHECK(outcome_of(
              "{% macro m() %}{{ ['<'] }}{% endmacro %}{{ m() }}{% autoescape true %}{{ m() }}{% endautoescape %}") ==
          "['<'][&#39;&lt;&#39;]");
    // A generator is made anew each time it is read, not shared by renderings or turns.
    CHECK(outcome_of("{% for i in [1, 2] %}{% set g = [1, 2] | map('string') %}{{ g | join }}{% endfor %}") == "1212");
    CHECK(outcome_of("{% for i in [1, 2] %}{% for x in {'a': 1} | items %}{{ x[0] }}{% endfor %}{% endfor %}") == "aa");
}

TEST_CASE("a template cannot make its parsing long or large", "[engine][text][jinja][folding]") {
    std::string many;
    for (int i = 0; i < 2000; ++i) many += "{{ 'ab' * 4000 | string | length }}{{ ('x' * 16000) | length }}";
    const std::string text = outcome_of(many, 100'000'000);
    CHECK(text.ends_with("16000"));
    // Not all of it was done beforehand: the budget ends, and the rest costs the rendering.
    CHECK(outcome_of(many, 5000).starts_with("TimeoutError"));
}

TEST_CASE("repr writes as Python does", "[engine][text][jinja][folding]") {
    CHECK(
        outcome_of(
            R"({% set x = ['12345678', "1234567'", '1234567"', 'a\'b"c', '12345678\\', '1234567\x7f8', 'abc\ndefgh\tij'] %}{{ x }}{{ x }})") ==
        std::string(
            R"(['12345678', "1234567'", '1234567"', 'a\'b"c', '12345678\\', '1234567\x7f8', 'abc\ndefgh\tij'])") +
            R"(['12345678', "1234567'", '1234567"', 'a\'b"c', '12345678\\', '1234567\x7f8', 'abc\ndefgh\tij'])");
    CHECK(outcome_of(R"({% set x = ['é漢字😀 ok', '\u200b\ud7ff\U000e0001é', 'ab\x00\x1f'] %}{{ x | string }})") ==
          R"(['é漢字😀 ok', '\u200b\ud7ff\U000e0001é', 'ab\x00\x1f'])");
}

}  // namespace attune
