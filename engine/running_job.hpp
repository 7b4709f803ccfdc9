#pragma once

#include "engine/choice.hpp"
#include "engine/job.hpp"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace attune {

/// A job inside the engine, from add() to its last event.
class RunningJob {
public:
    /// `modules`: what the job's do. `end_tokens`: any of them ends a choice. The job's seed and max_tokens are set.
    RunningJob(JobPtr taken, SequenceModules modules, std::uint64_t arrival, std::span<const TokenId> end_tokens,
               std::shared_ptr<const Tokenizer> tokens_to_text, BlockPool& pool, TimePoint now);

    RequestId id() const { return job->id; }
    const SamplingParams& params() const { return job->sampling; }
    int prompt_tokens() const { return static_cast<int>(job->prompt.size()); }
    int max_tokens() const { return *job->sampling.max_tokens; }

    /// Null when it does not exist yet (n > 1 forks after the prompt) or has ended.
    Choice* open_choice(int index);
    /// The other n - 1 choices, over the prompt's blocks; called once, before the first token.
    void fork_choices();
    int open_choices() const;
    /// Of any choice.
    bool has_blocks() const;

    /// Sends an event; a sink that throws loses only its own event.
    void tell(OutputEvent event) noexcept;

    /// Prompt scores are still being gathered.
    bool scores_prompt() const { return prompt_top && !prompt_told; }
    /// How many alternatives a prompt score has.
    int prompt_alternatives() const { return *prompt_top; }
    /// The next prompt position whose row is wanted for scores.
    int next_scored_row() const { return static_cast<int>(prompt_scores.size()) - 1; }
    bool is_prompt_scored() const { return static_cast<int>(prompt_scores.size()) >= prompt_tokens(); }
    void tell_prompt();

    /// The modules that act now, for `served`; those of weight 0 are off and not named.
    const std::vector<AppliedModule>& applied() const { return applied_; }
    void set_modules(std::vector<JobModule> modules);
    /// `module "a"`, `modules "a", "b"` or `the base model`, for error messages.
    std::string weights_in_words() const;

    /// The first answer becomes a line of the record, and choices[0] starts over under `modules`.
    void begin_again(std::vector<JobModule> modules, SequenceModules acting, BlockPool& pool);

    /// Of all answers.
    int completion_tokens() const;
    Finished finished() const;

    ScoredToken with_bytes(ScoredToken token) const;
    TokenScores with_bytes(TokenScores scores) const;

    JobPtr job;
    std::shared_ptr<const Tokenizer> tokenizer;    ///< null: texts stay empty
    std::vector<std::unique_ptr<Choice>> choices;  ///< [0] from the start, the others after the prompt
    std::vector<TokenId> end_ids;                  ///< what may not come before min_tokens

    std::optional<int> prompt_top;                          ///< set when prompt tokens are scored
    std::vector<std::optional<TokenScores>> prompt_scores;  ///< of the prompt's first tokens
    bool prompt_told = false;
    struct Switch {
        std::vector<JobModule> modules;
        SequenceModules acting;
    };
    std::optional<Switch> waiting_switch;    ///< until the prompt is scored by its first weights
    bool expects_revision = false;           ///< an answer that ends is kept open for it
    std::optional<std::string> waits_after;  ///< its outcome, when its answer has ended and waits for its revision
    bool parked = false;                     ///< its modules may have left their slots
    bool wanted = false;                     ///< parked, and they were asked for
    std::vector<ModuleOverlap> overlaps;     ///< of the modules that act now

    TimePoint received;
    std::optional<TimePoint> started;
    std::optional<TimePoint> first_token;
    int cached_tokens = 0;               ///< of the prompt, when it was read for the first token
    std::optional<TimePoint> last_told;  ///< the last token or prompt score that went out

    std::optional<ApplyMode> apply;  ///< how modules were put on the base for its rows; none without modules
    void note_apply(ApplyMode mode) { apply = !apply || *apply == mode ? mode : ApplyMode::mixed; }
    /// The prompt's scores are void; they are gathered again. Not after tell_prompt().
    void forget_prompt_scores();

private:
    void start(std::uint64_t arrival, SequenceModules modules, BlockPool& pool);

    std::vector<AppliedModule> applied_;
    std::vector<ServedEntry> revised_;  // of the answer that was made again, by choice
};

}  // namespace attune
