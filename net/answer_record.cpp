#include "net/answer_record.hpp"

#include "net/json_text.hpp"

#include <algorithm>

namespace attune {
namespace {

std::string_view apply_word(ApplyMode mode) {
    switch (mode) {
        case ApplyMode::batched:
            return "batched";
        case ApplyMode::merged:
            return "merged";
        case ApplyMode::mixed:
            return "mixed";
    }
    return "batched";
}

void append_names(std::string& out, const std::vector<std::string>& names) {
    out += '[';
    for (const auto& name : names) {
        if (&name != &names.front()) out += ',';
        append_json_string(out, name);
    }
    out += ']';
}

std::string usage_object(const Usage& usage) {
    std::string out = R"({"prompt_tokens":)";
    append_json_number(out, std::int64_t{usage.prompt_tokens});
    out += R"(,"total_tokens":)";
    append_json_number(out, std::int64_t{usage.prompt_tokens} + usage.completion_tokens);
    out += R"(,"completion_tokens":)";
    append_json_number(out, std::int64_t{usage.completion_tokens});
    out += R"(,"prompt_tokens_details":{"cached_tokens":)";
    append_json_number(out, std::int64_t{usage.cached_tokens});
    out += "}}";
    return out;
}

}  // namespace

void append_applied_modules(std::string& out, const std::vector<AppliedModule>& modules) {
    out += '[';
    for (const auto& module : modules) {
        if (&module != &modules.front()) out += ',';
        out += R"({"name":)";
        append_json_string(out, module.id.name);
        out += R"(,"generation":)";
        append_json_string(out, module.id.generation);
        out += R"(,"weight":)";
        append_json_number(out, module.weight);
        if (module.unverified) out += R"(,"unverified":true)";
        out += '}';
    }
    out += ']';
}

std::string revision_fields(const Revised& event, const std::vector<int>& choices) {
    std::string out = R"("base_tokens":)";
    append_json_number(out, std::int64_t{event.base_tokens});
    out += R"(,"modules":)";
    append_applied_modules(out, event.modules);
    out += R"(,"indexes":[)";
    for (const int choice : choices) {
        if (out.back() != '[') out += ',';
        append_json_number(out, std::int64_t{choice});
    }
    return out + ']';
}

void append_route(std::string& out, const RouteDecision& route, const std::vector<ModuleOverlap>& overlaps) {
    out += R"({"rule":)";
    append_json_string(out, route.rule);
    out += R"(,"modules":)";
    append_names(out, route.modules);
    if (!overlaps.empty()) out += R"(,"overlaps":[)";
    for (const auto& overlap : overlaps) {
        if (&overlap != &overlaps.front()) out += ',';
        out += R"({"modules":)";
        append_names(out, overlap.modules);
        if (!overlap.layers.empty()) {
            out += R"(,"layers":)";
            append_json_string(out, overlap.layers);
        }
        out += R"(,"projections":)";
        append_names(out, overlap.projections);
        out += '}';
    }
    if (!overlaps.empty()) out += ']';
    const auto add = [&](const char* key, const std::string& value) {
        if (value.empty()) return;
        out.append(",\"").append(key).append("\":");
        append_json_string(out, value);
    };
    add("name", route.name);
    add("matched", route.matched);
    if (route.score > 0) {
        out += R"(,"score":)";
        append_json_number(out, route.score);
    }
    if (!route.skipped.empty()) {
        out += R"(,"skipped":[)";
        for (const auto& one : route.skipped) {
            if (&one != &route.skipped.front()) out += ',';
            append_json_string(out, one);
        }
        out += ']';
    }
    out += '}';
}

AnswerRecord::AnswerRecord(std::size_t prompts, int choices_per_prompt)
    : prompts_(prompts), choices_per_prompt_(choices_per_prompt) {}

void AnswerRecord::admitted(std::size_t prompt, const Admitted& event) {
    PromptRecord& record = prompts_[prompt];
    if (!record.is_admitted) ++admitted_;
    record.is_admitted = true;
    record.admitted = event;
}

void AnswerRecord::finished(std::size_t prompt, const Finished& event) {
    PromptRecord& record = prompts_[prompt];
    if (!record.is_finished) ++finished_;
    record.is_finished = true;
    record.finished = event;
}

ColdWord AnswerRecord::cold() const {
    for (const auto& record : prompts_)
        if (record.admitted.cold != ColdWord::warm) return record.admitted.cold;
    return ColdWord::warm;
}

std::string_view AnswerRecord::served_word() const {
    bool base = false;
    bool module = false;
    for (const auto& record : prompts_)
        for (const auto& entry : record.finished.served) {
            if (entry.tokens == 0 && record.finished.usage.completion_tokens > 0) continue;
            (entry.modules.empty() ? base : module) = true;
        }
    if (base && module) return "mixed";
    return module ? "module" : "base";
}

Usage AnswerRecord::usage() const {
    Usage sum;
    for (const auto& record : prompts_) {
        const Usage& usage = record.finished.usage;
        // A request that was cut short never said how long its prompt was but for its admission.
        sum.prompt_tokens += record.is_finished ? usage.prompt_tokens : record.admitted.prompt_tokens;
        sum.completion_tokens += usage.completion_tokens;
        sum.cached_tokens += usage.cached_tokens;
    }
    return sum;
}

std::string AnswerRecord::usage_json() const { return all_finished() ? usage_object(usage()) : running_usage_json(); }

std::string AnswerRecord::running_usage_json() const {
    Usage sum = usage();
    sum.completion_tokens = tokens_seen_;
    return usage_object(sum);
}

void AnswerRecord::append_served(std::string& out) const {
    const bool many = prompts_.size() * static_cast<std::size_t>(choices_per_prompt_) > 1;
    out += '[';
    for (std::size_t prompt = 0; prompt < prompts_.size(); ++prompt)
        for (const auto& entry : prompts_[prompt].finished.served) {
            if (out.back() != '[') out += ',';
            out += R"({"modules":)";
            append_applied_modules(out, entry.modules);
            out += R"(,"tokens":)";
            append_json_number(out, std::int64_t{entry.tokens});
            if (many) {
                out += R"(,"choice":)";
                append_json_number(out, static_cast<std::int64_t>(prompt) * choices_per_prompt_ + entry.choice);
            }
            out += '}';
        }
    out += ']';
}

std::string AnswerRecord::attune_json() const {
    ApplyMode apply = prompts_.front().finished.apply;
    double queue_ms = 0;
    double ttft_ms = 0;
    for (const auto& record : prompts_) {
        if (!record.is_finished) continue;
        if (record.finished.apply != apply) apply = ApplyMode::mixed;
        queue_ms = std::max(queue_ms, record.finished.queue_ms);
        const bool first = ttft_ms == 0;
        ttft_ms = first ? record.finished.ttft_ms : std::min(ttft_ms, record.finished.ttft_ms);
    }
    std::string out = R"({"route":)";
    append_route(out, route(), prompts_.front().finished.overlaps);
    out += R"(,"cold":")";
    out += cold_word(cold());
    out += R"(","apply":")";
    out += apply_word(apply);
    out += R"(","served":)";
    append_served(out);
    out += R"(,"queue_ms":)";
    append_json_number(out, queue_ms);
    out += R"(,"ttft_ms":)";
    append_json_number(out, ttft_ms);
    out += '}';
    return out;
}

}  // namespace attune
