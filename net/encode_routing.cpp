#include "net/encode_routing.hpp"

#include "net/answer_record.hpp"
#include "net/json_text.hpp"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

namespace attune {
namespace {

namespace json = boost::json;

json::string text(const std::string& bytes) { return json::string(lossy_utf8(bytes)); }

json::array texts(const std::vector<std::string>& list) {
    json::array out;
    for (const std::string& one : list) out.emplace_back(text(one));
    return out;
}

json::array modules_json(const std::vector<WeightedModule>& modules) {
    json::array out;
    for (const WeightedModule& module : modules)
        out.emplace_back(json::object{{"name", text(module.name)}, {"weight", module.weight}});
    return out;
}

json::object rule_json(const RouteRule& rule) {
    json::object out;
    if (!rule.name.empty()) out["name"] = text(rule.name);
    out["modules"] = modules_json(rule.modules);
    const auto add = [&](const char* key, const std::vector<std::string>& words) {
        if (!words.empty()) out[key] = texts(words);
    };
    add("keywords", rule.keywords);
    add("regex", rule.regex);
    add("task_ids", rule.task_ids);
    add("tags", rule.tags);
    add("users", rule.users);
    if (rule.first_tokens > 0) out["first_tokens"] = rule.first_tokens;
    if (rule.priority != 0) out["priority"] = rule.priority;
    if (!rule.owner.empty()) out["owner"] = text(rule.owner);
    return out;
}

json::array rules_json(const std::vector<RouteRule>& rules) {
    json::array out;
    for (const RouteRule& rule : rules) out.emplace_back(rule_json(rule));
    return out;
}

json::object file_json(const RouteFile& file) {
    json::object users;
    for (const UserPreference& user : file.users) {
        json::object entry;
        if (!user.tags.empty()) entry["tags"] = texts(user.tags);
        if (!user.modules.empty()) entry["modules"] = modules_json(user.modules);
        users[text(user.user)] = std::move(entry);
    }
    json::object out{
        {"default", modules_json(file.default_modules)}, {"rule", rules_json(file.rules)}, {"users", std::move(users)}};
    if (file.classifier) {
        json::object classifier{{"file", text(file.classifier->file.filename().string())},
                                {"online", file.classifier->online}};
        if (file.classifier->threshold) classifier["threshold"] = *file.classifier->threshold;
        out["classifier"] = std::move(classifier);
    }
    return out;
}

/// Null: none is in force.
json::value classifier_json(const std::optional<ClassifierStatus>& status) {
    if (!status) return nullptr;
    return json::object{{"file", text(status->file)},
                        {"labels", texts(status->labels)},
                        {"threshold", status->threshold},
                        {"online", status->online},
                        {"updates", status->updates}};
}

}  // namespace

std::string routing_body(const RoutesStatus& status) {
    const bool is_ok = status.last_error.empty();
    json::string note = "No routes file is watched: these rules stay until the server ends.";
    if (status.source == "file")
        note = "These are the file's rules. They are read again when it changes.";
    else if (!status.file.empty() && status.source == "request")
        note =
            "Put in force by a request and not written to disk: the file's rules come back when it changes or on "
            "SIGHUP.";
    json::object out{{"object", "routes"},
                     {"source", text(status.source)},
                     {"file", status.file.empty() ? json::value(nullptr) : json::value(text(status.file))},
                     {"since", status.since},
                     {"status", is_ok ? json::string("ok") : text(status.last_error)},
                     {"failed_at", status.failed_at ? json::value(*status.failed_at) : json::value(nullptr)},
                     {"note", std::move(note)},
                     {"routes", file_json(status.routes)},
                     {"from_modules", rules_json(status.from_modules)},
                     {"classifier", classifier_json(status.classifier)}};
    return to_json(out);
}

std::string route_trial_body(const RouteTrial& trial) {
    std::string out = R"({"object":"route","route":)";
    append_route(out, trial.decision);
    out += R"(,"modules":)" + to_json(modules_json(trial.modules)) + R"(,"why":)";
    append_json_string(out, trial.why);
    return out + '}';
}

}  // namespace attune
