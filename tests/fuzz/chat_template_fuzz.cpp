// A chat template, then NUL and the messages: rendering ends, within its limits, in valid UTF-8 with well-formed spans.
#include "engine/text/chat_variables.hpp"
#include "engine/text/jinja/error.hpp"
#include "engine/text/jinja/template.hpp"
#include "fuzz/fuzz_input.hpp"

namespace attune::fuzz {
namespace {

constexpr std::string_view kMessages =
    R"([{"role":"system","content":"Be brief."},{"role":"user","content":"Hi <|x|> é"},)"
    R"({"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"f","arguments":{"a":1.5}}}]},)"
    R"({"role":"tool","content":"2"},{"role":"user","content":"And?"}])";

// Small, so that many renderings fit in a minute; the limits of a server differ in size only.
jinja::Limits small_limits() {
    jinja::Limits limits;
    limits.steps = 20'000;
    limits.output_bytes = 1 << 20;
    return limits;
}

std::tm fixed_time() {
    std::tm time{};
    time.tm_year = 126;
    time.tm_mday = 1;
    return time;
}

void render(const jinja::Template& code, const ChatPrompt& chat, const TemplateReads& reads) {
    static const std::vector<std::pair<std::string, std::string>> tokens{{"bos_token", "<s>"}, {"eos_token", "</s>"}};
    jinja::Arena arena(std::size_t{16} << 20);
    try {
        const auto variables = chat_variables(arena, chat, tokens, reads);
        if (!variables) return;
        auto rendered = code.render(arena, variables->list, fixed_time(), small_limits());
        auto* text = std::get_if<jinja::Text>(&rendered);
        if (text == nullptr) return;
        if (chat.continue_final_message && !cut_at_continuation(arena, *text, variables->continued)) return;
        demand(text->size() <= small_limits().output_bytes + (64 << 10));
        std::size_t end = 0;
        for (const auto& span : text->ranges()) {
            demand(span.begin >= end && span.end >= span.begin && span.end <= text->size());
            end = span.end;
        }
    } catch (const jinja::Failure&) {
        return;  // the small arena is full
    }
}

}  // namespace
}  // namespace attune::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace attune;
    const auto [source, messages] = fuzz::split_at_nul(fuzz::text_of(data, size));
    const auto parsed = jinja::Template::parse(source);
    const auto* code = std::get_if<jinja::Template>(&parsed);
    if (code == nullptr) return 0;
    const TemplateReads reads = reads_of(*code, source);
    ChatPrompt chat;
    chat.messages_json = messages.empty() ? fuzz::kMessages : messages;
    chat.tools_json = R"([{"type":"function","function":{"name":"f","description":"d","parameters":{"a":[1,null]}}}])";
    chat.template_kwargs_json = R"({"enable_thinking":true})";
    fuzz::render(*code, chat, reads);
    chat.tools_json.clear();
    chat.add_generation_prompt = false;
    chat.continue_final_message = true;
    fuzz::render(*code, chat, reads);
    return 0;
}
