#pragma once

#include "attune/cold_word.hpp"
#include "attune/token_event.hpp"
#include "net/api_request.hpp"

#include <string>
#include <vector>

namespace attune {

/// What an answer says of itself besides text: usage and the `attune` object, gathered over its prompts.
class AnswerRecord {
public:
    AnswerRecord(std::size_t prompts, int choices_per_prompt);

    void admitted(std::size_t prompt, const Admitted& event);
    void finished(std::size_t prompt, const Finished& event);
    void count_token() { ++tokens_seen_; }

    bool all_admitted() const { return admitted_ == prompts_.size(); }
    bool all_finished() const { return finished_ == prompts_.size(); }

    /// The first prompt's word that is not `warm`.
    ColdWord cold() const;
    /// The header attune-served: base, mixed or module.
    std::string_view served_word() const;
    const RouteDecision& route() const { return prompts_.front().admitted.route; }

    std::string usage_json() const;
    /// Prompt tokens and the tokens seen so far.
    std::string running_usage_json() const;
    std::string attune_json() const;

private:
    struct PromptRecord {
        Admitted admitted;
        Finished finished;
        bool is_admitted = false;
        bool is_finished = false;
    };

    Usage usage() const;
    void append_served(std::string& out) const;

    std::vector<PromptRecord> prompts_;
    int choices_per_prompt_;
    std::size_t admitted_ = 0;
    std::size_t finished_ = 0;
    int tokens_seen_ = 0;
};

/// `[{"name":…,"generation":…,"weight":…}]`
void append_applied_modules(std::string& out, const std::vector<AppliedModule>& modules);
/// `"base_tokens":…,"modules":[…],"indexes":[…]`: what a `revision` says; the indexes are those of the choices.
std::string revision_fields(const Revised& event, const std::vector<int>& choices);
void append_route(std::string& out, const RouteDecision& route, const std::vector<ModuleOverlap>& overlaps = {});

}  // namespace attune
