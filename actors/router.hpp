#pragma once

#include "actors/house_core.hpp"
#include "actors/interfaces.hpp"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace attune {

/// A request between admission and its last event.
struct Flight {
    SubmissionPtr submission;
    std::shared_ptr<PrepareTask> task;   ///< holds the prompt's text until it is known which template writes it
    std::shared_ptr<PrepareTask> spare;  ///< the text once more, while another rule may follow on a load that fails
    int asked = 0;                       ///< preparers, so that an answer which is out of date is known
    std::shared_ptr<std::atomic<bool>> cancelled;  ///< a preparer skips its work when set
    RouteDecision route;
    std::vector<WeightedModule> modules;   ///< empty: the base
    bool routed = false;                   ///< `route` and `modules` are decided
    std::optional<std::size_t> choice;     ///< RouteChoice::number, while another rule may follow it
    std::vector<std::size_t> passed_over;  ///< choices whose modules could not be had
    std::optional<PreparedPrompt> prompt;
    std::optional<LeaseNews> lease;  ///< the last news of it
    bool running = false;            ///< the executor has the job
    bool leased = false;             ///< the cache_manager holds something for it
    bool revises = false;            ///< its answer waits at its end for the modules that make it again

    const GenerationRequest& request() const { return submission->request; }
};

/// Admission, which modules, cold policies, cancel. Every request it takes ends with exactly one Finished or Failed.
struct RouterState {
    static inline const char* name = "router";
    static constexpr std::chrono::milliseconds kLook{2000};  ///< between two looks at the routes file
    static constexpr std::size_t kPassedOver = 16;           ///< rules without modules that one request gets past
    static constexpr int kTrials = 16;                       ///< at once; each holds its text

    RouterActor::pointer self = nullptr;
    CorePtr core;
    PeersPtr peers;

    void submit(const SubmissionPtr& submission);
    void cancel(RequestId id);
    void prepared(RequestId id, int asked, const Prepared& prompt);
    void lease_news(RequestId id, LeaseNews news);
    void ended(const std::vector<RequestId>& ids);
    void switched(RequestId id, bool done);
    void expire(RequestId id);
    void tokenize(const TokenizeTaskPtr& task);
    // --- router_rules.cpp
    void set_routes(const RoutesNewsPtr& news);
    void set_rules(const Rules& rules);
    void look_at_file();
    void tell_routes(const Caller& caller, const RoutesReply& reply);
    void put_routes(const std::string& json, const Caller& caller, const RoutesReply& reply);
    void try_route(const TrialPtr& trial);
    void greet(Greeting greeting);
    void start();

    void drain(const DoneReply& reply);
    void quit_all();
    void part_lost();
    void metrics(const TextReply& reply);

private:
    Result<void> admit(const GenerationRequest& request) const;
    /// scheduler.slo_ttft_ms: can the prompts ahead of one of so many tokens be read in time?
    Result<void> check_first_token(const GenerationRequest& request, std::int64_t prompt_tokens) const;
    /// From `model` and `attune.modules`; false: the rules decide.
    Result<bool> decide(Flight& flight) const;
    Result<void> check_modules(const std::vector<WeightedModule>& modules) const;
    /// Asks a preparer: for the rules' choice, or for the prompt.
    void ask_preparer(RequestId id, Flight& flight, const PrepareTaskPtr& task);
    /// The modules are decided.
    void routed(RequestId id, Flight& flight);
    void begin_prepare(RequestId id, Flight& flight, PromptText text);
    /// The prompt can be written as soon as the lease tells whose template and tokenizer count; false: the request
    /// ended.
    bool choose_text(RequestId id, Flight& flight, const LeaseNews& news);
    void ask_lease(RequestId id, Flight& flight);
    /// Both the prompt and the first news of the lease are there: what happens now?
    void proceed(RequestId id, Flight& flight);
    void hold(RequestId id, const Flight& flight);
    void dispatch(RequestId id, Flight& flight, std::vector<JobModule> modules, ColdWord cold);
    void keep_answer(RequestId id, Flight& flight);
    void release(RequestId id, Flight& flight, bool keep_loading);
    /// `reason`: for the metrics; null: the error's.
    void end(RequestId id, const Error& error, const char* reason = nullptr);
    void forget(RequestId id);
    /// The rules' choice could not be had: asks for the next one. False: there is none, the request ends.
    bool try_next_rule(RequestId id, Flight& flight, const Error& why);
    /// A request that names one module teaches the classifier, where that is switched on.
    void teach(Flight& flight) const;
    void take_choice(Flight& flight, const RouteChoice& choice) const;
    void ask_trial(const TrialPtr& trial);
    void check_trial(const TrialPtr& trial, std::optional<std::size_t> choice);
    void answer_trial(const TrialPtr& trial, Result<RouteTrial> answer);
    /// In turn; the last one is /tokenize's.
    PreparerActor next_preparer();

    std::map<RequestId, Flight> flights_;
    RouteBook book_;
    int trials_ = 0;
    std::vector<DoneReply> draining_;
    std::size_t preparer_ = 0;
    bool lost_ = false;
};

RouterActor::behavior_type router(RouterActor::stateful_pointer<RouterState> self, CorePtr core);

}  // namespace attune
