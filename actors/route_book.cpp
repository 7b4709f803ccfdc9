#include "actors/route_book.hpp"

#include <cstdio>
#include <utility>

namespace attune {

void RouteBook::take(const RoutesNews& news, std::int64_t now) {
    if (!news.changed) return;
    if (news.from_file) stamp_ = news.stamp;
    if (!news.rules) {
        if (!news.from_file) return;  // its sender has been told
        last_error_ = news.rules.error().message;
        failed_at_ = now;
        return;
    }
    if (news.from_file) {
        last_read_ = *news.rules;
        last_error_.clear();
    }
    rules_ = with_what_was_learned(*news.rules);
    source_ = news.from_file ? "file" : "request";
    since_ = now;
    rebuild();
}

/// A classifier that learns goes on from where it is while its file stays what it was.
RouteSetPtr RouteBook::with_what_was_learned(const RouteSetPtr& next) const {
    const auto& before = rules_->compiled.classifier;
    const auto& after = next->compiled.classifier;
    if (!before || !after || after->checksum() == 0 || before->checksum() != after->checksum()) return next;
    auto kept = std::make_shared<RouteSet>(*next);
    kept->compiled.classifier = before;
    return kept;
}

void RouteBook::set_manifest_rules(const Rules& rules) {
    manifest_rules_ = rules;
    rebuild();
}

void RouteBook::rebuild() {
    RouteFile all = rules_->file;
    if (manifest_rules_) {
        for (const RouteRule& rule : *manifest_rules_) {
            all.rules.push_back(rule);
            if (!rule.modules.empty()) all.rules.back().name = "module " + rule.modules.front().name;
        }
    }
    if (all.default_modules.empty() && !default_.empty()) all.default_modules.push_back(WeightedModule{default_, 1.0});
    table_ = std::make_shared<const RouteTable>(std::move(all), rules_->compiled);
}

RoutesStatus RouteBook::status(const Caller& caller, const RouteSource& source) const {
    const auto is_shown = [&](const RouteRule& rule) {
        return caller.admin || rule.owner.empty() || rule.owner == caller.name;
    };
    RoutesStatus status;
    const RouteFile& file = rules_->file;
    for (const RouteRule& rule : file.rules)
        if (is_shown(rule)) status.routes.rules.push_back(rule);
    for (const UserPreference& user : file.users)
        if (caller.admin || user.user == caller.name) status.routes.users.push_back(user);
    status.routes.default_modules = table_->file().default_modules;
    status.routes.classifier = file.classifier;
    if (manifest_rules_)
        for (const RouteRule& rule : *manifest_rules_)
            if (is_shown(rule)) status.from_modules.push_back(rule);
    if (const auto& classifier = rules_->compiled.classifier; classifier && file.classifier) {
        ClassifierStatus shown;
        shown.file = file.classifier->file.filename().string();
        if (caller.admin) shown.labels = classifier->labels();  // they may name an owner's modules
        shown.threshold = file.classifier->threshold.value_or(classifier->threshold());
        shown.online = file.classifier->online;
        shown.updates = classifier->updates();
        status.classifier = std::move(shown);
    }
    status.source = source_;
    status.file = source.name;
    status.since = since_;
    status.last_error = last_error_;
    if (!last_error_.empty()) status.failed_at = failed_at_;
    return status;
}

std::string explanation_of(const RouteDecision& decision) {
    const std::string& rule = decision.rule;
    std::string why;
    if (rule == "explicit") {
        why = "the request names its modules itself";
    } else if (rule == "classifier") {
        char score[32];
        std::snprintf(score, sizeof score, "%.3f", decision.score);
        why = "no rule matched, and the classifier gives these modules a probability of " + std::string(score);
    } else if (rule == "default") {
        why = "no rule matched";
    } else {
        const std::string what = rule == "task_id"   ? "task id"
                                 : rule == "regex"   ? "a pattern, which found"
                                 : rule == "keyword" ? "keyword"
                                                     : rule;
        why = what + " `" + decision.matched + "` of `" + decision.name + "`";
    }
    for (const std::string& one : decision.skipped)
        why += (&one == &decision.skipped.front() ? "; passed over, since their modules cannot be had: `" : ", `") +
               one + "`";
    return why;
}

}  // namespace attune
