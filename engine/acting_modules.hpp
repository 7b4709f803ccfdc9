#pragma once

#include "attune/result.hpp"
#include "engine/job.hpp"
#include "engine/module/module.hpp"
#include "engine/schedule/sequence.hpp"

#include <functional>
#include <span>
#include <vector>

namespace attune {

/// A module on its slot, and the cache blocks of its prefix.
struct Resident {
    const Module* module = nullptr;      ///< null: nothing is on that slot
    const BlockTable* prefix = nullptr;  ///< null: it has none
};
using FindResident = std::function<Resident(SlotId)>;

/// What a request's modules do to its sequences. The first position of an aLoRA is found in the prompt, never in what
/// is generated; one that is not invoked is left out, like weight 0. Errc::invalid_argument with the reason: a weight
/// that virtual tokens cannot have, two modules with virtual tokens, states that cannot be interpolated.
Result<SequenceModules> acting_modules(std::span<const TokenId> prompt, const std::vector<JobModule>& modules,
                                       Combine combine, const FindResident& find);

}  // namespace attune
