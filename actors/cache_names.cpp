// The name table: what the roots hold, and how names come and go.

#include "actors/cache_manager.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace attune {

std::int64_t unix_seconds() {
    return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
        .count();
}

void CacheManagerState::scan() {
    auto task = std::make_shared<LoaderTask>();
    task->kind = LoaderTask::Kind::scan;
    enqueue(Task{task, nullptr, [this](Result<LoaderDonePtr> done) {
                     if (done) apply_scan(std::move((*done)->scan));
                     if (!core->health->seeded.exchange(true) && core->on_seeded) core->on_seeded();
                 }});
}

void CacheManagerState::apply_scan(ScanResult scan) {
    std::set<std::string> seen;
    std::vector<NamePtr> pins;
    const auto& wanted_pins = core->settings.modules.pinned;
    for (FoundModule& found : scan.modules) {
        const std::string key = found.name;
        seen.insert(key);
        NamePtr entry = names.contains(key) ? names[key] : nullptr;
        if (entry && !entry->from_root) {
            scan.refused.push_back("module `" + key + "`: the name is taken by a module that was loaded by order");
            continue;
        }
        const bool changed = !entry || entry->found.path != found.path || !entry->found.header || !found.header ||
                             !(entry->found.header->source == found.header->source);
        if (!entry) {
            if (names.size() >= static_cast<std::size_t>(core->settings.limits.module_names)) {
                scan.refused.push_back("module `" + key + "`: the limit of module names is reached");
                continue;
            }
            entry = std::make_shared<NameEntry>();
            entry->created = unix_seconds();
            entry->from_root = entry->listed = true;
            entry->pinned =
                found.manifest.pin || std::find(wanted_pins.begin(), wanted_pins.end(), key) != wanted_pins.end();
            if (entry->pinned) pins.push_back(entry);
            names[key] = entry;
        }
        if (changed) entry->failure.reset();
        if (!found.header) {
            entry->failure = LoadFailure{found.header.error(), false, 1, {}};
            // A manifest that cannot be read now must not open an owner's module to everybody.
            found.manifest = entry->found.manifest;
        }
        entry->found = std::move(found);
    }
    std::vector<NamePtr> gone;
    for (const auto& [key, entry] : names)
        if (entry->from_root && !seen.contains(key)) gone.push_back(entry);
    for (const NamePtr& entry : gone) remove_name(entry);
    for (const std::string& pin : wanted_pins)
        if (!names.contains(pin)) scan.refused.push_back("modules.pinned names `" + pin + "`, which no root holds");
    for (const std::string& sentence : scan.refused) log(LogLevel::warn, sentence);
    refused = static_cast<int>(scan.refused.size());
    send_rules();
    refresh_pins();
    for (const NamePtr& entry : pins) pin(entry);
}

void CacheManagerState::remove_name(const NamePtr& entry) {
    entry->listed = false;
    entry->pinned = false;
    names.erase(entry->name());
    unlink(entry);
    refresh_pins();
    send_rules();
    pump();
}

/// The name lets go of its generation, which lives on while it is leased or has another name.
void CacheManagerState::unlink(const NamePtr& entry) {
    const CopyPtr copy = std::exchange(entry->copy, nullptr);
    if (!copy) return;
    std::erase(copy->aliases, entry.get());
    drop_if_unused(copy);
}

void CacheManagerState::send_rules() {
    auto rules = std::make_shared<std::vector<RouteRule>>();
    for (const auto& [unused, entry] : names)
        if (entry->found.manifest.rule) rules->push_back(*entry->found.manifest.rule);
    self->send(peers->router, rules_atom_v, Rules(std::move(rules)));
}

/// A chat for a module with a template of its own needs that template, and any text one's own tokenizer: the module is
/// loaded for it.
void CacheManagerState::tokenize(const TokenizeTaskPtr& task) {
    const auto refuse = [task](const Error& error) {
        if (task->encoded) (*task->encoded)(error);
        if (task->decoded) (*task->decoded)(error);
    };
    const NamePtr entry = find(task->model, task->caller);
    if (!entry) return refuse(unknown_module(task->model));
    const bool is_chat = task->encode && std::holds_alternative<ChatPrompt>(task->encode->prompt);
    const bool needs_module = is_chat ? entry->own_text() : entry->own_tokenizer();
    // What is wrong with a failed module may be its tokenizer.
    if ((is_chat || needs_module) && is_blocked(*entry, core->now())) return refuse(failure_of(*entry));
    if (!needs_module) return self->send(peers->router, tokenize_atom_v, task);
    order_load(entry, once<ModuleStatus>([this, task, entry, refuse](Result<ModuleStatus> status) {
                   if (!status) return refuse(status.error());
                   if (!entry->copy) return refuse(make_error(Errc::unavailable, "the module has just been unloaded"));
                   auto with_text = std::make_shared<TokenizeTask>(*task);
                   if (const auto& text = entry->copy->module->text) with_text->text.follow(*text);
                   self->send(peers->router, tokenize_atom_v, TokenizeTaskPtr(std::move(with_text)));
               }));
}

}  // namespace attune
