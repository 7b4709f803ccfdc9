#include "engine/text/jinja/from_json.hpp"
#include "engine/text/jinja/template.hpp"
#include "parity_files.hpp"
#include "tally.hpp"

#include <catch2/catch.hpp>

#include <ctime>
#include <optional>

namespace attune {
namespace {

using nlohmann::json;
using ordered = nlohmann::ordered_json;

std::tm clock_of(const std::string& now) {
    std::tm time{};
    strptime(now.c_str(), "%Y-%m-%dT%H:%M:%S", &time);
    time.tm_isdst = 0;
    // Fills in the days of week and year.
    timegm(&time);
    return time;
}

/// Their bytes are copied into the arena.
std::vector<jinja::Variable> variables_of(jinja::Arena& arena, const ordered& row) {
    std::vector<jinja::Variable> variables;
    const auto add = [&](const std::string& name, const ordered& value) {
        variables.push_back({arena.copy(name), jinja::value_from_json(arena, arena.copy(value.dump()))});
    };
    for (const char* name : {"messages", "tools", "documents", "add_generation_prompt"}) add(name, row.at(name));
    for (const auto& [name, value] : row.at("kwargs").items()) add(name, value);
    return variables;
}

using Outcome = std::variant<std::string, jinja::TemplateError>;

Outcome outcome_of(const std::string& source, const ordered& row) {
    auto parsed = jinja::Template::parse(source);
    if (auto* error = std::get_if<jinja::TemplateError>(&parsed)) return *error;
    jinja::Arena arena;
    const auto variables = variables_of(arena, row);
    const auto rendered = std::get<jinja::Template>(parsed).render(arena, variables, clock_of(row.at("now")));
    if (const auto* error = std::get_if<jinja::TemplateError>(&rendered)) return *error;
    return std::string(std::get<jinja::Text>(rendered).bytes());
}

/// What differs, or nothing.
std::optional<std::string> difference(const Outcome& outcome, const ordered& row) {
    const auto* error = std::get_if<jinja::TemplateError>(&outcome);
    if (row.contains("error")) {
        const std::string type = row.at("error").at("type");
        const std::string message = row.at("error").at("message");
        if (error == nullptr) return "no " + type + " but: " + std::get<std::string>(outcome);
        if (error->type != type) return error->type + " (" + error->message + ") instead of " + type;
        if (type == "TemplateError" && error->message != message) return "raised: " + error->message;
        return std::nullopt;
    }
    if (error != nullptr) return error->type + ": " + error->message;
    const std::string& text = std::get<std::string>(outcome);
    const std::string expected = row.at("expected");
    if (text == expected) return std::nullopt;
    std::size_t at = 0;
    while (at < text.size() && at < expected.size() && text[at] == expected[at]) ++at;
    const std::size_t from = at < 60 ? 0 : at - 60;
    return "at " + std::to_string(at) +
           "\n  is: " + json(text.substr(from, 160)).dump(-1, ' ', true, json::error_handler_t::replace) +
           "\n  expected: " + json(expected.substr(from, 160)).dump(-1, ' ', true, json::error_handler_t::replace);
}

std::vector<ordered> rows_of(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::vector<ordered> rows;
    for (std::string line; std::getline(file, line);) rows.push_back(ordered::parse(line));
    return rows;
}

}  // namespace

TEST_CASE("every one-line template gives jinja2's text or kind of error", "[engine][text][jinja][parity]") {
    Tally tally("chat_templates/one_liners");
    for (const ordered& row : rows_of(parity_path("chat_templates/one_liners.jsonl"))) {
        const std::string source = row.at("template");
        const auto wrong = difference(outcome_of(source, row), row);
        tally.check(!wrong, source + "\n  " + wrong.value_or(""));
    }
    tally.conclude();
}

TEST_CASE("every chat template gives jinja2's text or kind of error", "[engine][text][jinja][parity]") {
    int folders = 0;
    for (const auto& folder : std::filesystem::directory_iterator(parity_path("chat_templates"))) {
        if (!folder.is_directory()) continue;
        ++folders;
        Tally tally("chat_templates/" + folder.path().filename().string());
        const std::string source = read_text(folder.path() / "template.jinja");
        for (const ordered& row : rows_of(folder.path() / "cases.jsonl")) {
            const auto wrong = difference(outcome_of(source, row), row);
            tally.check(!wrong, row.at("case").dump() + "\n  " + wrong.value_or(""));
        }
        tally.conclude();
    }
    CHECK(folders == 36);
}

}  // namespace attune
