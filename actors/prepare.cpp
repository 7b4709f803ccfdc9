#include "actors/prepare.hpp"

#include "attune/log.hpp"
#include "engine/route/route_text.hpp"
#include "engine/sample/validate.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <random>
#include <span>
#include <string_view>
#include <utility>

namespace attune {
namespace {

using nlohmann::json;

/// What a prompt and its answer share.
struct Room {
    int tokens = 0;
    std::string what;
};

Room room_of(const PrepareParts& parts) {
    if (parts.kv_positions > 0 && parts.kv_positions < parts.max_model_len)
        return {parts.kv_positions, "the KV cache of "};
    return {parts.max_model_len, "the model's context of "};
}

std::uint64_t draw_seed() {
    thread_local std::mt19937_64 source{std::random_device{}()};
    return source();
}

/// Whether so many tokens and the answer fit. `at_least`: the count is a lower bound.
Result<void> check_length(const PrepareParts& parts, const SamplingParams& sampling, int tokens, bool at_least) {
    const Room room = room_of(parts);
    const auto exceeded = [](std::string text) {
        return make_error(Errc::context_exceeded, std::move(text), "prompt");
    };
    const std::string prompt_size =
        std::string("the prompt has ") + (at_least ? "at least " : "") + std::to_string(tokens) + " tokens";
    if (parts.limits.prompt_tokens > 0 && tokens > parts.limits.prompt_tokens)
        return exceeded(prompt_size + ", the limit is " + std::to_string(parts.limits.prompt_tokens));
    if (!sampling.max_tokens) {
        if (tokens < room.tokens) return {};
        return exceeded(prompt_size + ", which leaves no room in " + room.what + std::to_string(room.tokens));
    }
    // 64 bits: max_tokens is the client's and may be near the int's end.
    if (static_cast<std::int64_t>(tokens) + *sampling.max_tokens > room.tokens)
        return exceeded(prompt_size + " and max_tokens is " + std::to_string(*sampling.max_tokens) +
                        ": together they exceed " + room.what + std::to_string(room.tokens));
    return {};
}

/// A text up to here is encoded in about a millisecond, so its error may name the exact count.
constexpr std::size_t kShortText = 16 * 1024;  // bytes

/// `sampling` given: a long text that cannot fit is refused before it is encoded.
Result<std::vector<TokenId>> encode(const PrepareParts& parts, std::string_view text, bool add_special_tokens,
                                    std::span<const TextSpan> literal, const SamplingParams* sampling) {
    if (sampling != nullptr && text.size() > kShortText) {
        const auto fits = check_length(parts, *sampling, parts.tokenizer->min_tokens(text), /*at_least=*/true);
        if (!fits) return fits.error();
    }
    return parts.tokenizer->encode(text, add_special_tokens, literal);
}

Result<std::vector<TokenId>> tokenize_chat(const PrepareParts& parts, const ChatPrompt& chat,
                                           const SamplingParams* sampling) {
    if (!parts.tokenizer || !parts.chat_template)
        return make_error(Errc::invalid_argument, "this model has no chat template: use /v1/completions", "messages");
    auto rendered = parts.chat_template->render(chat);
    if (!rendered) return rendered.error();
    // The template writes BOS and the like itself, so the tokenizer adds nothing.
    return encode(parts, rendered->text, false, rendered->literal, sampling);
}

/// A text that begins with the BOS already gets no second one.
Result<std::vector<TokenId>> tokenize_text(const PrepareParts& parts, const TextPrompt& prompt,
                                           const SamplingParams* sampling) {
    const Tokenizer& tokenizer = *parts.tokenizer;
    auto ids = encode(parts, prompt.text, prompt.add_special_tokens, {}, sampling);
    if (!ids || !prompt.add_special_tokens || ids->size() < 2) return ids;
    if ((*ids)[0] != (*ids)[1] || !tokenizer.is_special((*ids)[0])) return ids;
    const auto added = tokenizer.encode("", /*add_special_tokens=*/true);
    if (!added.empty() && added.front() == ids->front()) ids->erase(ids->begin());
    return ids;
}

Result<std::vector<TokenId>> checked_ids(const PrepareParts& parts, const std::vector<TokenId>& ids) {
    for (std::size_t i = 0; i < ids.size(); ++i)
        if (ids[i] < 0 || ids[i] >= parts.vocab_size)
            return make_error(Errc::invalid_argument,
                              "prompt[" + std::to_string(i) + "] is " + std::to_string(ids[i]) +
                                  ", the vocabulary ends at " + std::to_string(parts.vocab_size - 1),
                              "prompt");
    return ids;
}

Result<std::vector<TokenId>> tokenize(const PrepareParts& parts, const Prompt& prompt, const SamplingParams* sampling) {
    Result<std::vector<TokenId>> ids = std::vector<TokenId>{};
    if (const auto* chat = std::get_if<ChatPrompt>(&prompt))
        ids = tokenize_chat(parts, *chat, sampling);
    else if (const auto* tokens = std::get_if<TokenPrompt>(&prompt))
        ids = checked_ids(parts, tokens->ids);
    else if (!parts.tokenizer)
        return make_error(Errc::invalid_argument, "this model has no tokenizer: give the prompt as token ids",
                          "prompt");
    else
        ids = tokenize_text(parts, std::get<TextPrompt>(prompt), sampling);
    if (ids && ids->empty()) return make_error(Errc::invalid_argument, "the prompt is empty", "prompt");
    return ids;
}

Result<void> fit_length(const PrepareParts& parts, PreparedPrompt& prompt) {
    const int tokens = static_cast<int>(prompt.ids.size());
    if (auto fits = check_length(parts, prompt.sampling, tokens, /*at_least=*/false); !fits) return fits;
    if (!prompt.sampling.max_tokens) prompt.sampling.max_tokens = room_of(parts).tokens - tokens;
    return {};
}

std::string text_of(const json& content) {
    if (content.is_string()) return content.get<std::string>();
    std::string text;
    if (!content.is_array()) return text;
    for (const json& part : content)
        if (part.is_object() && part.contains("text") && part["text"].is_string())
            text += part["text"].get_ref<const std::string&>();
    return text;
}

/// The base's parts, but for what the modules bring.
PrepareParts parts_under(PrepareParts parts, const PromptText& text) {
    if (text.chat_template) parts.chat_template = text.chat_template;
    if (text.tokenizer) parts.tokenizer = text.tokenizer;
    parts.vocab_size = std::max(parts.vocab_size, text.vocab_size);
    return parts;
}

Prepared prepare_unguarded(const PrepareParts& base, const PrepareTask& task) {
    const GenerationRequest& request = task.request;
    PreparedPrompt out;
    if (task.routes) {
        RouteQuery query;
        query.task_id = request.task_id;
        query.user = request.user;
        query.caller = request.caller.name;
        query.tags = request.tags;
        query.text = routing_text(request.prompt);
        query.passed_over = task.passed_over;
        out.choice = task.routes->choose(query);
        return out;
    }
    const PrepareParts parts = parts_under(base, task.text);
    out.sampling = request.sampling;
    if (auto valid = validate(out.sampling, parts.vocab_size, parts.limits); !valid) return valid.error();
    auto ids = tokenize(parts, request.prompt, &out.sampling);
    if (!ids) return ids.error();
    out.ids = std::move(*ids);
    if (auto fits = fit_length(parts, out); !fits) return fits.error();
    if (!out.sampling.seed) out.sampling.seed = draw_seed();
    return out;
}

}  // namespace

Result<std::vector<TokenId>> tokenize_prompt(const PrepareParts& parts, const Prompt& prompt) {
    return tokenize(parts, prompt, nullptr);
}

std::string routing_text(const Prompt& prompt) {
    if (const auto* text = std::get_if<TextPrompt>(&prompt)) return text->text;
    const auto* chat = std::get_if<ChatPrompt>(&prompt);
    if (!chat) return {};
    const json messages = json::parse(chat->messages_json, nullptr, /*allow_exceptions=*/false);
    if (!messages.is_array()) return {};
    for (auto message = messages.rbegin(); message != messages.rend(); ++message)
        if (message->is_object() && message->value("role", json()) == "user" && message->contains("content"))
            return text_of((*message)["content"]);
    return {};
}

Prepared prepare(const PrepareParts& parts, const PrepareTask& task) {
    if (*task.cancelled) return make_error(Errc::cancelled, "cancelled");
    try {
        return prepare_unguarded(parts, task);
    } catch (...) {
        return make_error(Errc::internal, "preparing the prompt met an unforeseen fault");
    }
}

void learn(const PrepareTask& task) {
    try {
        const std::string text = routing_text(task.request.prompt);
        task.learner->learn(comparable(beginning_of(text, Classifier::kScannedBytes)), task.label);
    } catch (...) {
        log(LogLevel::error, "the routing classifier could not learn from a request");
    }
}

void run_tokenize(const PrepareParts& base, const TokenizeTask& task) {
    try {
        const PrepareParts parts = parts_under(base, task.text);
        if (task.encoded) {
            auto ids = tokenize_prompt(parts, task.encode->prompt);
            if (!ids) return (*task.encoded)(ids.error());
            TokenizeResult result{std::move(*ids), parts.max_model_len, std::nullopt};
            if (task.encode->token_texts && parts.tokenizer) {
                result.texts.emplace();
                for (const TokenId id : result.tokens) result.texts->push_back(parts.tokenizer->token_bytes(id));
            }
            (*task.encoded)(std::move(result));
        }
        if (!task.decoded) return;
        if (!parts.tokenizer)
            return (*task.decoded)(make_error(Errc::invalid_argument, "this model has no tokenizer", "tokens"));
        if (auto valid = checked_ids(parts, task.decode); !valid) {
            valid.error().param = "tokens";
            return (*task.decoded)(valid.error());
        }
        (*task.decoded)(parts.tokenizer->decode(task.decode, /*skip_special_tokens=*/false));
    } catch (...) {
        const Error fault = make_error(Errc::internal, "tokenising met an unforeseen fault");
        if (task.encoded) (*task.encoded)(fault);
        if (task.decoded) (*task.decoded)(fault);
    }
}

}  // namespace attune
