#include "net/body_answer.hpp"

#include "net/json_text.hpp"
#include "net/stream_answer.hpp"

namespace attune {

BodyAnswer::BodyAnswer(const ApiRequest& request, std::string id, std::int64_t created, std::uint64_t limit_bytes)
    : endpoint_(request.endpoint),
      wants_logprobs_(request.logprobs),
      echo_(request.echo),
      wants_prompt_logprobs_(request.prompt_logprobs),
      choices_per_prompt_(request.choices_per_prompt),
      id_(std::move(id)),
      created_(created),
      model_(request.model),
      limit_bytes_(limit_bytes),
      record_(request.prompts.size(), request.choices_per_prompt),
      choices_(static_cast<std::size_t>(request.choices())),
      prompt_logprobs_(request.prompts.size(), "null") {
    for (auto& choice : choices_) choice.parser = std::make_unique<PlainOutputParser>();
}

void BodyAnswer::take(std::size_t prompt, OutputEvent event) {
    if (is_over()) return;
    std::visit([&](const auto& kind) { handle(prompt, kind); }, event);
}

BodyAnswer::Choice& BodyAnswer::choice_at(std::size_t prompt, int choice) {
    return choices_[prompt * static_cast<std::size_t>(choices_per_prompt_) + static_cast<std::size_t>(choice)];
}

void BodyAnswer::add(Choice& choice, const std::vector<MessageDelta>& deltas) {
    for (const auto& delta : deltas)
        (delta.kind == MessageDelta::Kind::content ? choice.content : choice.reasoning) += delta.text;
}

void BodyAnswer::handle(std::size_t prompt, const Admitted& event) { record_.admitted(prompt, event); }

void BodyAnswer::handle(std::size_t prompt, const PromptEvent& event) {
    if (wants_prompt_logprobs_) {
        prompt_logprobs_[prompt].clear();
        append_prompt_logprobs(prompt_logprobs_[prompt], event);
        const int copies = endpoint_ == Endpoint::chat ? 1 : choices_per_prompt_;
        if (!grow(prompt_logprobs_[prompt].size() * static_cast<std::uint64_t>(copies))) return;
    }
    if (!echo_) return;
    for (int j = 0; j < choices_per_prompt_; ++j) {
        Choice& choice = choice_at(prompt, j);
        const std::uint64_t before = choice.bytes();
        choice.content += event.text;
        for (std::size_t i = 0; wants_logprobs_ && i < event.pieces.size(); ++i)
            choice.logprobs.add(event.pieces[i], i < event.scores.size() ? event.scores[i] : std::nullopt);
        if (!grow(choice.bytes() - before)) return;
    }
}

void BodyAnswer::handle(std::size_t prompt, const TokenEvent& event) {
    record_.count_token();
    Choice& choice = choice_at(prompt, event.choice);
    const std::uint64_t before = choice.bytes();
    add(choice, choice.parser->token(event));
    if (wants_logprobs_ && event.scores) {
        if (endpoint_ == Endpoint::completions) {
            choice.logprobs.add(*event.scores);
        } else {
            if (!choice.chat_logprobs.empty()) choice.chat_logprobs += ',';
            append_chat_logprob(choice.chat_logprobs, *event.scores);
        }
    }
    grow(choice.bytes() - before);
}

bool BodyAnswer::grow(std::uint64_t bytes) {
    bytes_ += bytes;
    if (bytes_ > limit_bytes_ && !error_)
        error_ = make_error(Errc::invalid_argument, "The answer is larger than " + std::to_string(limit_bytes_) +
                                                        " bytes (limits.answer_bytes): ask for a stream, or for less.");
    return !error_;
}

/// Only the second text is told; the record counts both.
void BodyAnswer::handle(std::size_t prompt, const Revised&) {
    const int copies = endpoint_ == Endpoint::chat ? 1 : choices_per_prompt_;
    if (prompt_logprobs_[prompt] != "null")
        bytes_ -= prompt_logprobs_[prompt].size() * static_cast<std::uint64_t>(copies);
    prompt_logprobs_[prompt] = "null";
    for (int j = 0; j < choices_per_prompt_; ++j) {
        Choice& choice = choice_at(prompt, j);
        bytes_ -= choice.bytes();
        choice = Choice{std::make_unique<PlainOutputParser>(), {}, {}, {}, {}, {}};
    }
}

void BodyAnswer::handle(std::size_t prompt, const ChoiceFinished& event) {
    Choice& choice = choice_at(prompt, event.choice);
    add(choice, choice.parser->finish(event.text));
    choice.end = event;
}

void BodyAnswer::handle(std::size_t prompt, const Finished& event) { record_.finished(prompt, event); }

void BodyAnswer::handle(std::size_t, const Failed& event) { error_ = event.error; }

void BodyAnswer::append_chat_choice(std::string& out, const Choice& choice) const {
    out += R"("message":{"role":"assistant","content":)";
    append_json_string(out, choice.content);
    out += R"(,"refusal":null)";
    if (!choice.reasoning.empty()) {
        out += R"(,"reasoning":)";
        append_json_string(out, choice.reasoning);
    }
    out += R"(},"logprobs":)";
    if (wants_logprobs_)
        out += R"({"content":[)" + choice.chat_logprobs + "]}";
    else
        out += "null";
}

void BodyAnswer::append_completion_choice(std::string& out, std::size_t index) const {
    const Choice& choice = choices_[index];
    out += R"("text":)";
    append_json_string(out, choice.content);
    out += R"(,"logprobs":)";
    if (wants_logprobs_)
        CompletionLogprobs(choice.logprobs).take(out);
    else
        out += "null";
    if (wants_prompt_logprobs_)
        out += R"(,"prompt_logprobs":)" + prompt_logprobs_[index / static_cast<std::size_t>(choices_per_prompt_)];
}

std::string BodyAnswer::body() const {
    std::string out = R"({"id":)";
    append_json_string(out, id_);
    out += endpoint_ == Endpoint::chat ? R"(,"object":"chat.completion","created":)"
                                       : R"(,"object":"text_completion","created":)";
    append_json_number(out, created_);
    out += R"(,"model":)";
    append_json_string(out, model_);
    out += R"(,"choices":[)";
    for (std::size_t index = 0; index < choices_.size(); ++index) {
        if (index > 0) out += ',';
        out += R"({"index":)";
        append_json_number(out, static_cast<std::int64_t>(index));
        out += ',';
        endpoint_ == Endpoint::chat ? append_chat_choice(out, choices_[index]) : append_completion_choice(out, index);
        const ChoiceFinished end = choices_[index].end.value_or(ChoiceFinished{});
        out += R"(,"finish_reason":")";
        out += finish_word(end.reason);
        out += R"(","stop_reason":)";
        append_stop_reason(out, end);
        out += '}';
    }
    out += R"(],"usage":)" + record_.usage_json();
    // vLLM puts a chat's prompt log-probabilities beside the choices, a completion's into each of them.
    if (wants_prompt_logprobs_ && endpoint_ == Endpoint::chat)
        out += R"(,"prompt_logprobs":)" + prompt_logprobs_.front();
    out += R"(,"system_fingerprint":null,"attune":)" + record_.attune_json() + '}';
    return out;
}

}  // namespace attune
