// Chat templates, on one thread. Reads groups of cases from stdin, one JSON value a line, as bench/text/jinja_ratio.py
// writes them: {"template", "cases": [{"messages", "tools", "documents", "kwargs": JSON texts, "variables": the same as
// one object, "add_generation_prompt", "bos_token", "eos_token"}]}. Answers each with one line of microseconds, a
// figure per case: prompt_us from a request's JSON to the text, engine_us without the parsing of that JSON. The job
// "endless" renders a template once that has no end, and answers with the milliseconds until it was stopped.
#include "engine/text/chat_template.hpp"
#include "engine/text/jinja/from_json.hpp"
#include "engine/text/jinja/template.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <ctime>
#include <iostream>
#include <string>
#include <variant>
#include <vector>

namespace {

using nlohmann::json;

double cpu_seconds() {
    std::timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

/// Of one call: the median of three batches of a millisecond.
template <class Work>
double microseconds(Work&& work) {
    double begin = cpu_seconds();
    work();
    const int calls = std::max(1, static_cast<int>(1e-3 / std::max(cpu_seconds() - begin, 1e-7)));
    std::array<double, 3> batches{};
    for (double& batch : batches) {
        begin = cpu_seconds();
        for (int i = 0; i < calls; ++i) work();
        batch = (cpu_seconds() - begin) / calls * 1e6;
    }
    std::sort(batches.begin(), batches.end());
    return batches[1];
}

attune::ChatPrompt prompt_of(const json& row) {
    attune::ChatPrompt prompt;
    prompt.messages_json = row.at("messages");
    prompt.tools_json = row.at("tools");
    prompt.documents_json = row.at("documents");
    prompt.template_kwargs_json = row.at("kwargs");
    prompt.add_generation_prompt = row.at("add_generation_prompt");
    return prompt;
}

double prompt_us(const std::string& source, const json& row) {
    const auto made = attune::ChatTemplate::parse(source, row.at("bos_token"), row.at("eos_token"));
    const attune::ChatPrompt prompt = prompt_of(row);
    return microseconds([&] { (void)(*made)->render(prompt); });
}

/// One case's variables, parsed.
struct Given {
    explicit Given(const json& row) : text(row.at("variables")) {
        const attune::jinja::Value parsed = attune::jinja::value_from_json(arena, text);
        for (const auto& [name, value] : parsed.dict().entries()) variables.push_back({name.bytes(), value});
    }
    std::string text;
    attune::jinja::Arena arena;
    std::vector<attune::jinja::Variable> variables;
};

std::tm local_time() {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    localtime_r(&now, &local);
    return local;
}

std::string rendered(const attune::jinja::Template& code, const json& row) {
    const Given given(row);
    attune::jinja::Arena arena;
    const auto result = code.render(arena, given.variables, local_time());
    const auto* text = std::get_if<attune::jinja::Text>(&result);
    return text == nullptr ? "an error" : std::string(text->bytes());
}

double engine_us(const attune::jinja::Template& code, const json& row) {
    const Given given(row);
    const std::tm now = local_time();
    return microseconds([&] {
        attune::jinja::Arena arena;
        (void)code.render(arena, given.variables, now);
    });
}

json answer_to(const json& job) {
    const std::string source = job.at("template");
    const auto parsed = attune::jinja::Template::parse(source);
    const auto& code = std::get<attune::jinja::Template>(parsed);
    json answer = json::object();
    if (job.at("job") == "endless") {
        const double begin = cpu_seconds();
        attune::jinja::Arena arena;
        const bool stopped = std::holds_alternative<attune::jinja::TemplateError>(code.render(arena, {}, local_time()));
        answer["ms"] = stopped ? (cpu_seconds() - begin) * 1e3 : -1;
    }
    for (const json& row : job.at("cases")) {
        if (job.at("job") == "texts") {
            answer["texts"].push_back(rendered(code, row));
        } else {
            answer["prompt_us"].push_back(prompt_us(source, row));
            answer["engine_us"].push_back(engine_us(code, row));
        }
    }
    return answer;
}

}  // namespace

int main() {
    for (std::string line; std::getline(std::cin, line);) std::cout << answer_to(json::parse(line)).dump() << std::endl;
    return 0;
}
