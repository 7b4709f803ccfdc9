#include "actors/module_table.hpp"

#include <algorithm>
#include <set>

namespace attune {
namespace {

constexpr const char* kProjectionNames[kProjections] = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                                        "gate_proj", "up_proj", "down_proj"};

void describe_content(const Module& module, ModuleStatus& status) {
    status.kind = module.kind;
    status.rank = module.max_rank;
    status.generation = module.id.generation;
    status.base_match = module.base_match;
    std::map<int, std::pair<int, double>> layers;
    std::set<int> projections;
    for (const LowRankPair& pair : module.pairs) {
        auto& layer = layers[pair.layer];
        if (pair.rank > layer.first) layer = {pair.rank, pair.scale};
        projections.insert(static_cast<int>(pair.projection));
    }
    status.targets.clear();
    for (const int projection : projections) status.targets.emplace_back(kProjectionNames[projection]);
    // By layer number: those that the module leaves alone have rank 0.
    for (const auto& [layer, rank_and_scale] : layers) {
        status.rank_and_scale.resize(static_cast<std::size_t>(layer) + 1);
        status.rank_and_scale.back() = rank_and_scale;
    }
}

}  // namespace

bool Copy::pinned() const {
    return std::any_of(aliases.begin(), aliases.end(), [](const NameEntry* alias) { return alias->is_pinned(); });
}

Tier NameEntry::tier() const {
    if (copy) return copy->place == Copy::Place::resident ? Tier::resident : Tier::host;
    if (load) return Tier::loading;
    return failure ? Tier::failed : Tier::cold;
}

ModuleStatus status_of(const NameEntry& entry) {
    ModuleStatus status;
    status.name = entry.name();
    status.tier = entry.tier();
    status.pinned = entry.is_pinned();
    status.owner = entry.owner();
    status.created = entry.created;
    status.base_match = "unknown";
    if (entry.found.header) {
        status.kind = entry.found.header->kind;
        status.rank = entry.found.header->max_rank;
        status.targets = entry.found.header->targets;
    }
    if (entry.failure) status.last_error = entry.failure->error.message;
    if (!entry.copy) return status;
    describe_content(*entry.copy->module, status);
    status.leases = entry.copy->leases;
    status.bytes = status.tier == Tier::resident ? entry.copy->slot_bytes : entry.copy->module->host_bytes;
    return status;
}

Error failure_of(const NameEntry& entry) {
    const LoadFailure& failure = *entry.failure;
    return make_error(failure.retryable ? Errc::unavailable : Errc::invalid_module,
                      "module `" + entry.name() + "` could not be loaded: " + failure.error.message, "model");
}

bool is_blocked(const NameEntry& entry, TimePoint now) {
    if (!entry.failure || entry.copy || entry.load) return false;
    return !entry.failure->retryable || now < entry.failure->retry_at;
}

Error unknown_module(const std::string& name) {
    return make_error(Errc::unknown_model, "The model `" + name + "` does not exist.", "model");
}

}  // namespace attune
