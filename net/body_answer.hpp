#pragma once

#include "attune/output_parser.hpp"
#include "attune/token_event.hpp"
#include "net/answer_record.hpp"
#include "net/api_request.hpp"
#include "net/logprobs_json.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace attune {

/// Gathers the events of one request's prompts into an unstreamed body.
class BodyAnswer {
public:
    /// An answer that grows beyond `limit_bytes` fails with Errc::invalid_argument naming limits.answer_bytes.
    BodyAnswer(const ApiRequest& request, std::string id, std::int64_t created, std::uint64_t limit_bytes);

    void take(std::size_t prompt, OutputEvent event);
    bool is_over() const { return error_ || record_.all_finished(); }
    /// Set once the answer failed.
    const std::optional<Error>& error() const { return error_; }
    const AnswerRecord& record() const { return record_; }
    /// Valid once the answer is over without an error.
    std::string body() const;

private:
    struct Choice {
        std::unique_ptr<OutputParser> parser;
        std::string content;
        std::string reasoning;
        std::string chat_logprobs;  ///< the items of `content`
        CompletionLogprobs logprobs;
        std::optional<ChoiceFinished> end;

        std::uint64_t bytes() const {
            return content.size() + reasoning.size() + chat_logprobs.size() + logprobs.bytes();
        }
    };

    void handle(std::size_t prompt, const Admitted& event);
    void handle(std::size_t prompt, const PromptEvent& event);
    void handle(std::size_t prompt, const TokenEvent& event);
    void handle(std::size_t, const Switched&) {}
    void handle(std::size_t prompt, const Revised& event);
    void handle(std::size_t prompt, const ChoiceFinished& event);
    void handle(std::size_t prompt, const Finished& event);
    void handle(std::size_t prompt, const Failed& event);

    /// Counts what was added to the answer; false once that is too much.
    bool grow(std::uint64_t bytes);
    Choice& choice_at(std::size_t prompt, int choice);
    static void add(Choice& choice, const std::vector<MessageDelta>& deltas);
    void append_chat_choice(std::string& out, const Choice& choice) const;
    void append_completion_choice(std::string& out, std::size_t index) const;

    const Endpoint endpoint_;
    const bool wants_logprobs_;
    const bool echo_;
    const bool wants_prompt_logprobs_;
    const int choices_per_prompt_;
    const std::string id_;
    const std::int64_t created_;
    const std::string model_;
    const std::uint64_t limit_bytes_;
    AnswerRecord record_;
    std::vector<Choice> choices_;
    std::vector<std::string> prompt_logprobs_;  ///< per prompt
    std::uint64_t bytes_ = 0;                   ///< text and log-probabilities gathered, as told by the events
    std::optional<Error> error_;
};

}  // namespace attune
