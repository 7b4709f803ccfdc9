#include "net/stream_answer.hpp"

#include "net/json_text.hpp"

namespace attune {

std::string_view finish_word(FinishReason reason) {
    switch (reason) {
        case FinishReason::stop:
            return "stop";
        case FinishReason::length:
            return "length";
        case FinishReason::cancelled:
            return "abort";
    }
    return "stop";
}

void append_stop_reason(std::string& out, const ChoiceFinished& event) {
    if (const auto* text = std::get_if<std::string>(&event.stop_reason))
        append_json_string(out, *text);
    else if (const auto* id = std::get_if<TokenId>(&event.stop_reason))
        append_json_number(out, std::int64_t{*id});
    else
        out += "null";
}

StreamAnswer::StreamAnswer(const ApiRequest& request, std::string id, std::int64_t created, AnswerListener& listener)
    : endpoint_(request.endpoint),
      include_usage_(request.include_usage),
      continuous_usage_(request.continuous_usage_stats),
      logprobs_(request.logprobs),
      echo_(request.echo),
      choices_per_prompt_(request.choices_per_prompt),
      listener_(listener),
      record_(request.prompts.size(), request.choices_per_prompt),
      choices_(static_cast<std::size_t>(request.choices())),
      open_choices_(request.choices()) {
    for (auto& choice : choices_) choice.parser = std::make_unique<PlainOutputParser>();
    head_ = R"({"id":)";
    append_json_string(head_, id);
    head_ += endpoint_ == Endpoint::chat ? R"(,"object":"chat.completion.chunk","created":)"
                                         : R"(,"object":"text_completion","created":)";
    append_json_number(head_, created);
    head_ += R"(,"model":)";
    append_json_string(head_, request.model);
    head_ += R"(,"choices":)";
}

void StreamAnswer::take(std::size_t prompt, OutputEvent event) {
    if (over_) return;
    const bool may_pass = std::holds_alternative<Admitted>(event) || std::holds_alternative<Failed>(event);
    if (!record_.all_admitted() && !may_pass) {
        early_.emplace_back(prompt, std::move(event));
        return;
    }
    dispatch(prompt, event);
}

void StreamAnswer::dispatch(std::size_t prompt, const OutputEvent& event) {
    std::visit([&](const auto& kind) { handle(prompt, kind); }, event);
}

void StreamAnswer::handle(std::size_t prompt, const Admitted& event) {
    record_.admitted(prompt, event);
    if (!record_.all_admitted()) return;
    listener_.on_admitted();
    const auto early = std::move(early_);
    for (const auto& [early_prompt, early_event] : early)
        if (!over_) dispatch(early_prompt, early_event);
}

void StreamAnswer::handle(std::size_t prompt, const PromptEvent& event) {
    if (!echo_ || endpoint_ != Endpoint::completions) return;
    for (int choice = 0; choice < choices_per_prompt_; ++choice) {
        const int index = index_of(prompt, choice);
        auto& logprobs = choices_[static_cast<std::size_t>(index)].logprobs;
        for (std::size_t i = 0; logprobs_ && i < event.pieces.size(); ++i)
            logprobs.add(event.pieces[i], i < event.scores.size() ? event.scores[i] : std::nullopt);
        completion_chunk(index, event.text);
    }
}

void StreamAnswer::handle(std::size_t prompt, const TokenEvent& event) {
    record_.count_token();
    const int index = index_of(prompt, event.choice);
    endpoint_ == Endpoint::chat ? chat_token(index, event) : completion_token(index, event);
}

void StreamAnswer::chat_token(int index, const TokenEvent& event) {
    start_chat_choice(index);
    const auto deltas = choices_[static_cast<std::size_t>(index)].parser->token(event);
    const TokenScores* scores = logprobs_ && event.scores ? &*event.scores : nullptr;
    // Text may be held back inside a character or a stop string: then there is nothing to tell yet.
    if (!deltas.empty() || scores != nullptr) chat_chunk(index, deltas, scores);
}

void StreamAnswer::completion_token(int index, const TokenEvent& event) {
    auto& logprobs = choices_[static_cast<std::size_t>(index)].logprobs;
    if (logprobs_ && event.scores) logprobs.add(*event.scores);
    if (!event.text.empty() || !logprobs.empty()) completion_chunk(index, event.text);
}

void StreamAnswer::handle(std::size_t, const Switched& event) { listener_.on_switched(event); }

void StreamAnswer::handle(std::size_t prompt, const Revised& event) {
    std::vector<int> begun_again;
    for (int number = 0; number < choices_per_prompt_; ++number) {
        const int index = index_of(prompt, number);
        Choice& choice = choices_[static_cast<std::size_t>(index)];
        if (choice.ended) ++open_choices_;
        choice = Choice{std::make_unique<PlainOutputParser>(), {}};
        begun_again.push_back(index);
    }
    // The last choice's end was held back for `attune`. It is void if it was one of these, and not the last otherwise.
    if (!held_.empty()) {
        chunk_ = std::move(held_);
        held_.clear();
        const bool is_void = held_choice_ / choices_per_prompt_ == static_cast<int>(prompt);
        if (!is_void) send_chunk();
    }
    listener_.on_revised(event, begun_again);
}

void StreamAnswer::handle(std::size_t prompt, const ChoiceFinished& event) {
    const int index = index_of(prompt, event.choice);
    choices_[static_cast<std::size_t>(index)].ended = true;
    if (endpoint_ == Endpoint::chat) {
        start_chat_choice(index);
        begin_chunk(index);
        append_deltas(choices_[static_cast<std::size_t>(index)].parser->finish(event.text));
        chunk_ += R"(,"logprobs":null)";
    } else {
        begin_chunk(index);
        chunk_ += R"("text":)";
        append_json_string(chunk_, event.text);
        chunk_ += R"(,"logprobs":null)";
    }
    end_choice(&event);
    if (--open_choices_ > 0) {
        send_chunk();
    } else {
        held_ = std::move(chunk_);
        held_choice_ = index;
    }
    finish_if_complete();
}

void StreamAnswer::handle(std::size_t prompt, const Finished& event) {
    record_.finished(prompt, event);
    finish_if_complete();
}

void StreamAnswer::handle(std::size_t, const Failed& event) {
    over_ = true;
    listener_.on_failed(event.error);
}

void StreamAnswer::finish_if_complete() {
    if (over_ || !record_.all_finished()) return;
    over_ = true;
    if (!held_.empty()) {
        chunk_ = std::move(held_);
        chunk_ += R"(,"attune":)";
        chunk_ += record_.attune_json();
        send_chunk();
    }
    if (include_usage_) {
        chunk_ = head_ + R"([],"usage":)" + record_.usage_json() + '}';
        listener_.on_chunk(chunk_);
    }
    listener_.on_finished();
}

void StreamAnswer::start_chat_choice(int index) {
    Choice& choice = choices_[static_cast<std::size_t>(index)];
    if (choice.started) return;
    choice.started = true;
    begin_chunk(index);
    chunk_ += R"("delta":{"role":"assistant","content":""},"logprobs":null)";
    end_choice(nullptr);
    send_chunk();
}

void StreamAnswer::chat_chunk(int index, const std::vector<MessageDelta>& deltas, const TokenScores* scores) {
    begin_chunk(index);
    append_deltas(deltas);
    chunk_ += R"(,"logprobs":)";
    if (scores != nullptr) {
        chunk_ += R"({"content":[)";
        append_chat_logprob(chunk_, *scores);
        chunk_ += "]}";
    } else {
        chunk_ += "null";
    }
    end_choice(nullptr);
    send_chunk();
}

void StreamAnswer::completion_chunk(int index, std::string_view text) {
    begin_chunk(index);
    chunk_ += R"("text":)";
    append_json_string(chunk_, text);
    chunk_ += R"(,"logprobs":)";
    auto& logprobs = choices_[static_cast<std::size_t>(index)].logprobs;
    if (logprobs.empty())
        chunk_ += "null";
    else
        logprobs.take(chunk_);
    end_choice(nullptr);
    send_chunk();
}

void StreamAnswer::begin_chunk(int index) {
    chunk_.assign(head_);
    chunk_ += R"([{"index":)";
    append_json_number(chunk_, std::int64_t{index});
    chunk_ += ',';
}

void StreamAnswer::append_deltas(const std::vector<MessageDelta>& deltas) {
    chunk_ += R"("delta":{)";
    for (const auto kind : {MessageDelta::Kind::reasoning, MessageDelta::Kind::content}) {
        std::string text;
        for (const auto& delta : deltas)
            if (delta.kind == kind) text += delta.text;
        if (text.empty()) continue;
        if (chunk_.back() != '{') chunk_ += ',';
        chunk_ += kind == MessageDelta::Kind::content ? R"("content":)" : R"("reasoning":)";
        append_json_string(chunk_, text);
    }
    chunk_ += '}';
}

void StreamAnswer::end_choice(const ChoiceFinished* reason) {
    chunk_ += R"(,"finish_reason":)";
    if (reason == nullptr) {
        chunk_ += "null}]";
    } else {
        chunk_ += '"';
        chunk_ += finish_word(reason->reason);
        chunk_ += R"(","stop_reason":)";
        append_stop_reason(chunk_, *reason);
        chunk_ += "}]";
    }
    if (continuous_usage_) chunk_ += R"(,"usage":)" + record_.running_usage_json();
}

void StreamAnswer::send_chunk() {
    chunk_ += '}';
    listener_.on_chunk(chunk_);
}

}  // namespace attune
