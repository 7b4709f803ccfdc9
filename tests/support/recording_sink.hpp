#pragma once

#include "attune/token_sink.hpp"

#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace attune {

/// Keeps every event and answers what a test wants to know of them.
class RecordingSink final : public TokenSink {
public:
    void push(OutputEvent event) override {
        if (std::holds_alternative<Revised>(event)) {
            before_revision = std::move(events);
            events.assign(1, before_revision.front());  // Admitted stays
        }
        events.push_back(std::move(event));
    }

    template <class Event>
    std::vector<Event> all() const {
        std::vector<Event> found;
        for (const OutputEvent& event : events) {
            if (const auto* wanted = std::get_if<Event>(&event)) found.push_back(*wanted);
        }
        return found;
    }
    template <class Event>
    std::optional<Event> one() const {
        const auto found = all<Event>();
        return found.size() == 1 ? std::optional<Event>(found[0]) : std::nullopt;
    }

    std::vector<TokenEvent> tokens(int choice = 0) const {
        std::vector<TokenEvent> found;
        for (const TokenEvent& token : all<TokenEvent>()) {
            if (token.choice == choice) found.push_back(token);
        }
        return found;
    }
    std::vector<TokenId> ids(int choice = 0) const {
        std::vector<TokenId> found;
        for (const TokenEvent& token : tokens(choice)) found.push_back(token.id);
        return found;
    }
    /// All text of a choice, the tail that came with its end included.
    std::string text(int choice = 0) const {
        std::string text;
        for (const TokenEvent& token : tokens(choice)) text += token.text;
        if (const auto end = finish(choice)) text += end->text;
        return text;
    }
    std::optional<ChoiceFinished> finish(int choice = 0) const {
        for (const ChoiceFinished& end : all<ChoiceFinished>()) {
            if (end.choice == choice) return end;
        }
        return std::nullopt;
    }
    std::optional<Finished> finished() const { return one<Finished>(); }
    std::optional<Error> failure() const {
        const auto failed = one<Failed>();
        return failed ? std::optional<Error>(failed->error) : std::nullopt;
    }
    /// The promise of TokenSink: exactly one last event, and it is the last.
    bool ended_once() const {
        const std::size_t ends = all<Finished>().size() + all<Failed>().size();
        return ends == 1 &&
               (std::holds_alternative<Finished>(events.back()) || std::holds_alternative<Failed>(events.back()));
    }

    std::vector<OutputEvent> events;
    std::vector<OutputEvent> before_revision;  ///< what a revision made void
};

}  // namespace attune
