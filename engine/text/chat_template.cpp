#include "engine/text/chat_template.hpp"

#include "engine/files/gguf.hpp"
#include "engine/files/model_path.hpp"
#include "engine/text/chat_variables.hpp"
#include "engine/text/gguf_tokenizer.hpp"
#include "engine/text/jinja/template.hpp"
#include "engine/text/whole_file.hpp"

#include <nlohmann/json.hpp>

#include <ctime>
#include <optional>
#include <utility>

namespace attune {
namespace {

using nlohmann::json;

/// Tokens that templates name: bos_token, eos_token and the others of the tokenizer's configuration.
using NamedTokens = std::vector<std::pair<std::string, std::string>>;

Error as_error(const jinja::TemplateError& error) {
    // What a template raises itself is written for the client; the rest needs to say where it comes from.
    if (error.type == "TemplateError") return make_error(Errc::invalid_argument, error.message, "messages");
    return make_error(Errc::invalid_argument, "chat template: " + error.type + ": " + error.message, "messages");
}

std::tm local_time() {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    localtime_r(&now, &local);
    return local;
}

struct ParsedSource {
    jinja::Template code;
    TemplateReads reads;
};

Result<ParsedSource> parse_source(std::string_view source) {
    auto parsed = jinja::Template::parse(source);
    if (const auto* error = std::get_if<jinja::TemplateError>(&parsed)) {
        return make_error(Errc::invalid_argument, "chat template: " + error->type + ": " + error->message);
    }
    auto& code = std::get<jinja::Template>(parsed);
    const TemplateReads reads = reads_of(code, source);
    return ParsedSource{std::move(code), reads};
}

class JinjaChatTemplate final : public ChatTemplate {
public:
    JinjaChatTemplate(ParsedSource usual, std::optional<ParsedSource> with_tools, NamedTokens tokens)
        : usual_(std::move(usual)), with_tools_(std::move(with_tools)), tokens_(std::move(tokens)) {}

    Result<RenderedChat> render(const ChatPrompt& chat) const override {
        const bool has_tools = !chat.tools_json.empty() && chat.tools_json != "null";
        const ParsedSource& source = has_tools && with_tools_ ? *with_tools_ : usual_;
        jinja::Arena arena;
        const auto variables = chat_variables(arena, chat, tokens_, source.reads);
        if (!variables) return variables.error();
        const std::tm now = source.reads.clock ? local_time() : std::tm{};
        const auto rendered = source.code.render(arena, variables->list, now);
        if (const auto* error = std::get_if<jinja::TemplateError>(&rendered)) return as_error(*error);
        auto text = std::get<jinja::Text>(rendered);
        if (chat.continue_final_message) {
            if (auto cut = cut_at_continuation(arena, text, variables->continued); !cut) return cut.error();
        }
        RenderedChat result;
        result.text = text.bytes();
        if (text.is_literal() && !text.empty()) result.literal.push_back({0, text.size(), true});
        result.literal.reserve(text.ranges().size());
        for (const jinja::TextRange& range : text.ranges()) result.literal.push_back({range.begin, range.end, true});
        return result;
    }

private:
    ParsedSource usual_;
    std::optional<ParsedSource> with_tools_;
    NamedTokens tokens_;
};

using Made = Result<std::shared_ptr<const ChatTemplate>>;

Made make_template(std::string_view source, const std::optional<std::string>& tool_source, NamedTokens tokens) {
    auto usual = parse_source(source);
    if (!usual) return usual.error();
    std::optional<ParsedSource> with_tools;
    if (tool_source) {
        auto parsed = parse_source(*tool_source);
        if (!parsed) return parsed.error();
        with_tools = std::move(*parsed);
    }
    return Made(std::make_shared<const JinjaChatTemplate>(std::move(*usual), std::move(with_tools), std::move(tokens)));
}

NamedTokens named_tokens(const json& config) {
    NamedTokens tokens;
    for (const char* name :
         {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
        const auto found = config.find(name);
        if (found == config.end()) continue;
        if (found->is_string()) tokens.emplace_back(name, found->get<std::string>());
        if (found->is_object() && found->contains("content")) {
            tokens.emplace_back(name, found->at("content").get<std::string>());
        }
    }
    return tokens;
}

struct Sources {
    std::optional<std::string> usual;
    std::optional<std::string> with_tools;
};

/// `chat_template` is the template, or a list of named ones: "default" is the usual one, "tool_use" serves requests
/// with tools.
Result<Sources> sources_in(const json& config) {
    Sources sources;
    const auto found = config.find("chat_template");
    if (found == config.end() || found->is_null()) return sources;
    if (found->is_string()) {
        sources.usual = found->get<std::string>();
        return sources;
    }
    for (const json& one : *found) {
        const std::string name = one.at("name").get<std::string>();
        if (name == "default") sources.usual = one.at("template").get<std::string>();
        if (name == "tool_use") sources.with_tools = one.at("template").get<std::string>();
    }
    if (!sources.usual) {
        return make_error(Errc::unsupported, "tokenizer_config.json: chat_template has no template named default");
    }
    return sources;
}

/// tokenizer.chat_template, and tokenizer.chat_template.tool_use beside it.
Made open_gguf(const std::filesystem::path& path) {
    const auto header = read_gguf_header(path);
    if (!header) return header.error();
    auto usual = header->text("tokenizer.chat_template");
    if (!usual) return usual.error();
    if (!*usual) return Made(std::shared_ptr<const ChatTemplate>());
    const auto with_tools = header->text("tokenizer.chat_template.tool_use");
    if (!with_tools) return with_tools.error();
    auto tokens = named_tokens_of_gguf(*header);
    if (!tokens) return tokens.error();
    return make_template(**usual, *with_tools, std::move(*tokens));
}

}  // namespace

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::parse(std::string source, std::string bos_token,
                                                                std::string eos_token) {
    return make_template(source, std::nullopt,
                         {{"bos_token", std::move(bos_token)}, {"eos_token", std::move(eos_token)}});
}

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::make(std::string_view usual,
                                                               const std::optional<std::string>& with_tools,
                                                               NamedTokens named_tokens) {
    return make_template(usual, with_tools, std::move(named_tokens));
}

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::open(const std::filesystem::path& model) {
    if (is_gguf_file(model)) return open_gguf(model);
    const std::filesystem::path& folder = model;
    json config = json::object();
    Sources sources;
    try {
        if (const auto text = read_whole_file(folder / "tokenizer_config.json")) config = json::parse(*text);
        auto found = sources_in(config);
        if (!found) return found.error();
        sources = std::move(*found);
    } catch (const json::exception& error) {
        return make_error(Errc::invalid_argument, std::string("tokenizer_config.json: ") + error.what());
    }
    if (auto file = read_whole_file(folder / "chat_template.jinja")) {
        sources.usual = std::move(*file);
        sources.with_tools = read_whole_file(folder / "additional_chat_templates" / "tool_use.jinja");
    }
    if (!sources.usual) return Made(std::shared_ptr<const ChatTemplate>());
    return make_template(*sources.usual, sources.with_tools, named_tokens(config));
}

}  // namespace attune
