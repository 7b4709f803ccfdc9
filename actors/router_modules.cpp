// Between admission and the engine: a request's prompt and its modules come, in either order.

#include "actors/prompt_text.hpp"
#include "actors/router.hpp"
#include "attune/cold_word.hpp"

#include <algorithm>
#include <utility>

namespace attune {
namespace {

/// A client that reads a stream must have said itself that it can forget what it has read.
ColdPolicy offered(ColdPolicy policy, const GenerationRequest& request) {
    const bool may_revise = !request.streamed || request.cold == ColdPolicy::revise;
    return policy == ColdPolicy::revise && !may_revise ? ColdPolicy::upgrade : policy;
}

ColdWord word_for(ColdPolicy policy) {
    switch (policy) {
        case ColdPolicy::wait:
            return ColdWord::wait;
        case ColdPolicy::fallback:
            return ColdWord::fallback;
        case ColdPolicy::upgrade:
            return ColdWord::upgrade;
        case ColdPolicy::revise:
            break;
    }
    return ColdWord::revise;
}

}  // namespace

// ---------------------------------------------------------------- preparing

PreparerActor RouterState::next_preparer() {
    preparer_ = (preparer_ + 1) % (peers->preparers.size() - 1);
    return peers->preparers[preparer_];
}

void RouterState::ask_preparer(RequestId id, Flight& flight, const PrepareTaskPtr& task) {
    const int asked = ++flight.asked;
    self->request(next_preparer(), caf::infinite, prepare_atom_v, task)
        .then([this, id, asked](const PreparedPtr& prompt) { prepared(id, asked, *prompt); },
              [this, id, asked](const caf::error& error) { prepared(id, asked, from_caf(error)); });
}

void RouterState::routed(RequestId id, Flight& flight) {
    if (flight.modules.empty()) return begin_prepare(id, flight, {});
    ask_lease(id, flight);
}

void RouterState::begin_prepare(RequestId id, Flight& flight, PromptText text) {
    const auto task = std::exchange(flight.task, nullptr);
    task->routes = nullptr;
    task->text = std::move(text);
    ask_preparer(id, flight, task);
}

bool RouterState::choose_text(RequestId id, Flight& flight, const LeaseNews& news) {
    const bool ready = news.kind == LeaseNews::Kind::ready;
    if (!flight.task) {  // written by the base's template already, since the lease named no other
        if (!ready || news.texts.empty()) return true;
        end(id, make_error(Errc::unavailable, "module `" + news.texts.front().module +
                                                  "` got another chat template or tokenizer while the request waited: "
                                                  "ask again"));
        return false;
    }
    if (!ready) {
        if (news.own_text) return true;
        const bool waits = news.kind == LeaseNews::Kind::cold && news.policy == ColdPolicy::wait;
        if (flight.choice && waits) flight.spare = std::make_shared<PrepareTask>(*flight.task);
        begin_prepare(id, flight, {});
        return true;
    }
    auto text = prompt_text(news.texts, std::holds_alternative<ChatPrompt>(flight.task->request.prompt));
    if (!text) {
        end(id, text.error());
        return false;
    }
    begin_prepare(id, flight, *std::move(text));
    return true;
}

void RouterState::prepared(RequestId id, int asked, const Prepared& prompt) {
    const auto found = flights_.find(id);
    if (found == flights_.end()) return;  // cancelled meanwhile
    Flight& flight = found->second;
    if (flight.asked != asked) return;  // another rule's modules write the prompt now
    if (!prompt) return end(id, prompt.error());
    if (!flight.routed) {
        take_choice(flight, *prompt->choice);
        if (auto valid = check_modules(flight.modules); !valid) {
            if (!try_next_rule(id, flight, valid.error())) end(id, valid.error());
            return;
        }
        return routed(id, flight);
    }
    flight.prompt = *prompt;
    proceed(id, flight);
}

void RouterState::tokenize(const TokenizeTaskPtr& task) { self->send(peers->preparers.back(), tokenize_atom_v, task); }

// ---------------------------------------------------------------- modules

void RouterState::ask_lease(RequestId id, Flight& flight) {
    flight.leased = true;
    const GenerationRequest& request = flight.request();
    self->send(peers->cache_manager, lease_atom_v,
               LeaseAsk{id, flight.modules, request.cold, request.combine, request.caller});
}

void RouterState::lease_news(RequestId id, LeaseNews news) {
    const auto found = flights_.find(id);
    if (found == flights_.end()) return;  // its release is on the way
    Flight& flight = found->second;
    if (!flight.leased) return;
    news.policy = offered(news.policy, flight.request());
    if (news.kind == LeaseNews::Kind::failed) {
        flight.leased = false;
        // Under `upgrade` and `revise` the base's answer stays; `served` tells.
        const bool promised = flight.lease && flight.lease->kind == LeaseNews::Kind::cold;
        if (flight.running)
            keep_answer(id, flight);
        else if (promised && flight.lease->policy != ColdPolicy::wait)
            proceed(id, flight);  // the base answers, however soon the load fails
        else if (!try_next_rule(id, flight, news.error))
            end(id, news.error);
        return;
    }
    if (flight.running) {
        // A template found only now: the base finishes what was written for it; `served` tells.
        if (!news.texts.empty()) {
            keep_answer(id, flight);
            return release(id, flight, /*keep_loading=*/false);
        }
        if (news.kind == LeaseNews::Kind::ready)
            self->send(peers->executor, switch_atom_v, id, JobModules{std::move(news.modules)});
        return;
    }
    const bool first = !flight.lease;
    if (!choose_text(id, flight, news)) return;
    flight.lease = std::move(news);
    const bool waits = flight.lease->kind == LeaseNews::Kind::warm || flight.lease->policy == ColdPolicy::wait;
    if (first && waits && flight.lease->kind != LeaseNews::Kind::ready) hold(id, flight);
    proceed(id, flight);
}

/// A time-out for whatever waits: `wait`, a warm module that still has to be installed, an answer for its revision.
void RouterState::hold(RequestId id, const Flight& flight) {
    const GenerationRequest& request = flight.request();
    std::int64_t limit_ms = request.timeout_ms.value_or(core->settings.cold.timeout_ms);
    if (request.deadline_ms) limit_ms = std::min(limit_ms, *request.deadline_ms);
    self->delayed_send(self, std::chrono::milliseconds(std::max<std::int64_t>(limit_ms, 0)), expire_atom_v, id);
}

void RouterState::proceed(RequestId id, Flight& flight) {
    if (!flight.prompt || flight.running) return;
    if (flight.modules.empty()) return dispatch(id, flight, {}, ColdWord::warm);
    if (!flight.lease) return;
    LeaseNews& news = *flight.lease;
    const ColdWord cold = news.was_cold ? word_for(news.policy) : ColdWord::warm;
    if (news.kind == LeaseNews::Kind::ready) return dispatch(id, flight, std::move(news.modules), cold);
    if (news.kind == LeaseNews::Kind::warm || news.policy == ColdPolicy::wait) return;
    flight.revises = news.policy == ColdPolicy::revise && flight.leased;
    dispatch(id, flight, {}, cold);
    if (flight.revises) hold(id, flight);
    if (news.policy == ColdPolicy::fallback) release(id, flight, /*keep_loading=*/true);
}

void RouterState::expire(RequestId id) {
    const auto found = flights_.find(id);
    if (found == flights_.end()) return;
    if (found->second.running) return keep_answer(id, found->second);
    const auto& lease = found->second.lease;
    if (lease && lease->kind == LeaseNews::Kind::ready) return;  // it was: now the prompt is what it waits for
    end(id, make_error(Errc::timeout, "the module was not ready in time", "model"));
}

}  // namespace attune
