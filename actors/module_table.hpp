#pragma once

#include "actors/keep_value.hpp"
#include "actors/messages.hpp"
#include "actors/module_files.hpp"
#include "actors/resolve_modules.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace attune {

struct NameEntry;

/// One generation in memory. Names point to it, leases hold it in host memory, users hold it in its slot.
struct Copy {
    enum class Place : std::uint8_t { host, installing, resident };

    ModulePtr module;
    std::uint64_t slot_bytes = 0;
    Place place = Place::host;
    SlotId slot{};                    ///< while resident
    std::vector<NameEntry*> aliases;  ///< listed names, and a name about to be listed
    int leases = 0;                   ///< parts of leases that hold it in host memory
    int users = 0;                    ///< parts of leases that were given its slot; they are among `leases`
    bool merged = false;              ///< its weights are added into the base's
    bool handover = false;            ///< gets no new lease until a starving request had its place
    TimePoint last_used{};
    RecentUses uses;
    double load_seconds = 0;            ///< what its load took
    double host_age = 0, slot_age = 0;  ///< the tiers' ages when it was last used

    bool pinned() const;
    bool idle() const { return leases == 0 && place != Place::installing; }
    /// What it is worth keeping in host memory, at so many recent hits.
    double host_worth(double hits) const { return KeepOrder::worth(host_age, hits, load_seconds, module->host_bytes); }
    /// The same in its slot. An install costs what its bytes cost, so only hits and age tell slots apart.
    double slot_worth(double hits) const { return KeepOrder::worth(slot_age, hits, 1.0, 1); }
};
using CopyPtr = std::shared_ptr<Copy>;

/// One read of one source, whoever waits for it.
struct Load {
    std::uint64_t number = 0;
    std::string name;
    std::filesystem::path path;
    std::optional<ModuleSource> source;
    std::uint64_t reserved = 0;  ///< bytes of the host budget
    bool running = false;        ///< a loader has it
    bool dropped = false;        ///< nobody waits any more and it had not begun
    bool expired = false;        ///< its waiters were told; the loader still holds the memory
    TimePoint started{};
    std::vector<std::shared_ptr<NameEntry>> names;  ///< get the copy when it is there
};
using LoadPtr = std::shared_ptr<Load>;

struct LoadFailure {
    Error error;
    bool retryable = false;
    int attempts = 0;
    TimePoint retry_at{};
};

/// A row of the name table.
struct NameEntry {
    FoundModule found;  ///< name, path, header, manifest
    bool from_root = false;
    bool listed = false;  ///< false: removed, or not there yet
    bool pinned = false;  ///< by its own name
    int pinned_by = 0;    ///< compositions that are pinned and have it as a member
    std::int64_t created = 0;
    /// modules.swap = strict: of the first module that was swapped away; null: the present one's count.
    std::shared_ptr<const SwapFacts> place;
    CopyPtr copy;  ///< null: cold, loading or failed
    LoadPtr load;
    std::optional<LoadFailure> failure;
    std::uint64_t known_slot_bytes = 0;  ///< of the last load; 0: never loaded

    const std::string& name() const { return found.name; }
    const std::string& owner() const { return found.manifest.owner; }
    bool visible_to(const Caller& caller) const { return caller.admin || owner().empty() || owner() == caller.name; }
    std::uint64_t parsed_bytes() const { return found.header ? found.header->parsed_bytes : 0; }
    /// Its texts are written by a template or read by a tokenizer of its own, which are known once it is loaded.
    bool own_text() const {
        return copy ? copy->module->text != nullptr
                    : found.header && (found.header->own_template || found.header->own_tokenizer);
    }
    bool own_tokenizer() const {
        return copy ? copy->module->text && copy->module->text->tokenizer : found.header && found.header->own_tokenizer;
    }
    /// It only names others: nothing of it is ever loaded.
    bool is_composition() const { return found.header && !found.header->members.empty(); }
    bool is_pinned() const { return pinned || pinned_by > 0; }
    Tier tier() const;
};
using NamePtr = std::shared_ptr<NameEntry>;

/// A hold on a set of modules: a request's, or the house's own (an order, a pin, a prefetch).
struct Lease {
    enum class Stage : std::uint8_t {
        queued,      ///< waits for host bytes of its whole set
        loading,     ///< holds what is there and waits for its loads
        placing,     ///< all in host memory; waits for slot bytes of its whole set
        installing,  ///< the executor has it
        ready,
        parked,  ///< its request was preempted: it holds host bytes only, until resume_atom
        over,
    };
    struct Part {
        NamePtr name;
        double weight = 1.0;
        CopyPtr copy;
        LoadPtr load;
    };

    std::uint64_t number = 0;
    std::optional<RequestId> request;  ///< none: the house's own
    std::vector<Part> parts;           ///< a request's: in the order they act in
    NamePtr subject;                   ///< the composition that an order spoke of; null: the first part
    std::vector<RequiredGeneration> unchecked;
    std::optional<Combine> combine;   ///< of the compositions among what was asked for
    std::vector<std::string> owners;  ///< of the modules and compositions among them
    Stage stage = Stage::queued;
    ColdPolicy policy = ColdPolicy::wait;
    bool was_cold = false;
    bool own_text = false;  ///< of a module that is not switched off
    bool give_up = false;   ///< a prefetch: leaves when there is no room at once
    TimePoint since{};
    std::int64_t retry_after = -1;  ///< not before a release later than this one (the arena had no place)
    bool afresh = false;            ///< the arena was in pieces and the set left it once, to be placed together
    /// The executor waits for it to be resident again.
    std::optional<caf::typed_response_promise<JobModules>> resumes = {};
    std::vector<OnceReplyPtr<ModuleStatus>> replies;  ///< orders that asked for the same thing

    /// load_lora_adapter: the name appears, or moves, once the module is checked whole.
    bool commits = false;
    bool inplace = false;
    bool compares = false;  ///< modules.swap = strict: the last part is what is to be replaced, until commit
    std::optional<std::string> expected_generation;
};
using LeasePtr = std::shared_ptr<Lease>;

/// Wall-clock time, for `created`.
std::int64_t unix_seconds();

/// Not for compositions, which are told by their members.
ModuleStatus status_of(const NameEntry& entry);

/// What a request for a failed module hears.
Error failure_of(const NameEntry& entry);
/// It failed, and it is not time to try again.
bool is_blocked(const NameEntry& entry, TimePoint now);
/// What a request for a name that nobody has, or that is another's, hears.
Error unknown_module(const std::string& name);

}  // namespace attune
