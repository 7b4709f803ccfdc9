#include "engine/cache_weights.hpp"

#include <bit>
#include <cstdint>
#include <set>
#include <string>

namespace attune {
namespace {

/// With its length before it, so that no text can look like two.
void append_text(std::string& out, std::string_view text) {
    out += std::to_string(text.size());
    out += ':';
    out += text;
}

std::string salt_of(const std::vector<JobModule>& modules, std::string_view salt) {
    std::string out;
    append_text(out, salt);
    std::set<std::string_view> owners;
    for (const JobModule& module : modules) {
        if (module.applied.weight != 0) owners.insert(module.owners.begin(), module.owners.end());
    }
    for (const std::string_view owner : owners) append_text(out, owner);
    return out;
}

}  // namespace

std::vector<CacheWeights> cache_weights(const SequenceModules& acting, const std::vector<JobModule>& modules,
                                        const FindResident& find, std::string_view salt) {
    const int virtual_tokens = acting.virtual_tokens.count;
    std::set<int> begins{0};
    for (const SequenceModule& module : acting.list) begins.insert(virtual_tokens > 0 ? 0 : module.from);

    std::vector<CacheWeights> out;
    for (const int begin : begins) {
        std::string list;
        for (const SequenceModule& module : acting.list) {
            if (virtual_tokens == 0 && module.from > begin) continue;
            const std::string& generation = find(module.slot.slot).module->id.generation;
            if (generation.empty()) return {};
            append_text(list, generation);
            list += '*' + std::to_string(std::bit_cast<std::uint32_t>(module.slot.weight));
            list += '@' + std::to_string(module.from) + ' ';
        }
        // Without modules there is nothing to combine.
        const Combine combine = list.empty() ? Combine::sequence : acting.combine;
        out.push_back({begin, std::to_string(static_cast<int>(combine)) + ' ' + std::to_string(virtual_tokens) + ' ' +
                                  list + salt_of(modules, salt)});
    }
    return out;
}

}  // namespace attune
