#pragma once

#include "attune/output_parser.hpp"
#include "attune/token_event.hpp"
#include "net/answer_record.hpp"
#include "net/api_request.hpp"
#include "net/logprobs_json.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attune {

/// What a door does with a streamed answer; called from StreamAnswer::take(), in this order: admitted, chunks,
/// switches and revisions, then one of finished and failed. A failure may also come first.
class AnswerListener {
public:
    virtual ~AnswerListener() = default;
    virtual void on_admitted() = 0;
    /// One OpenAI chunk as JSON; the view is gone after the call.
    virtual void on_chunk(std::string_view chunk) = 0;
    virtual void on_switched(const Switched& event) = 0;
    /// These choices (their indexes in the chunks) begin again: what was told of them is void.
    virtual void on_revised(const Revised& event, const std::vector<int>& choices) = 0;
    virtual void on_finished() = 0;
    virtual void on_failed(const Error& error) = 0;
};

/// Turns the events of one request's prompts into OpenAI chunks.
///
/// What follows an admission waits until every prompt is admitted, so that a refusal of the last one can still be a
/// plain error. The last chunk that has choices waits for Finished and carries `attune`.
class StreamAnswer {
public:
    StreamAnswer(const ApiRequest& request, std::string id, std::int64_t created, AnswerListener& listener);

    void take(std::size_t prompt, OutputEvent event);
    bool is_over() const { return over_; }
    const AnswerRecord& record() const { return record_; }

private:
    struct Choice {
        std::unique_ptr<OutputParser> parser;
        CompletionLogprobs logprobs;
        bool started = false;  ///< chat: the role chunk is out
        bool ended = false;
    };

    void handle(std::size_t prompt, const Admitted& event);
    void handle(std::size_t prompt, const PromptEvent& event);
    void handle(std::size_t prompt, const TokenEvent& event);
    void handle(std::size_t prompt, const Switched& event);
    void handle(std::size_t prompt, const Revised& event);
    void handle(std::size_t prompt, const ChoiceFinished& event);
    void handle(std::size_t prompt, const Finished& event);
    void handle(std::size_t prompt, const Failed& event);
    void dispatch(std::size_t prompt, const OutputEvent& event);

    int index_of(std::size_t prompt, int choice) const {
        return static_cast<int>(prompt) * choices_per_prompt_ + choice;
    }
    void start_chat_choice(int index);
    void chat_token(int index, const TokenEvent& event);
    void completion_token(int index, const TokenEvent& event);
    void chat_chunk(int index, const std::vector<MessageDelta>& deltas, const TokenScores* scores);
    void completion_chunk(int index, std::string_view text);
    void begin_chunk(int index);
    void append_deltas(const std::vector<MessageDelta>& deltas);
    /// Closes the choice with its end; `reason` null: it goes on.
    void end_choice(const ChoiceFinished* reason);
    void send_chunk();
    void finish_if_complete();

    const Endpoint endpoint_;
    const bool include_usage_;
    const bool continuous_usage_;
    const bool logprobs_;
    const bool echo_;
    const int choices_per_prompt_;
    AnswerListener& listener_;
    AnswerRecord record_;
    std::vector<Choice> choices_;
    std::string head_;  ///< what every chunk begins with, up to `"choices":`
    std::string chunk_;
    std::string held_;  ///< the last choice's end, without its closing brace
    int held_choice_ = 0;
    std::vector<std::pair<std::size_t, OutputEvent>> early_;
    int open_choices_;
    bool over_ = false;
};

std::string_view finish_word(FinishReason reason);
void append_stop_reason(std::string& out, const ChoiceFinished& event);

}  // namespace attune
