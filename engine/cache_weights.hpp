#pragma once

#include "engine/acting_modules.hpp"

#include <string_view>
#include <vector>

namespace attune {

/// What a sequence's cached blocks are shared by beside tokens and apply mode (DESIGN 3.1): `combine`, the ordered list
/// of (generation, weight as it is computed with, first position), then the client's salt and the owners of `modules`.
/// Generations are those of the content on the slots. `acting` is what acting_modules() made of `modules`.
///
/// Where an aLoRA begins the list changes: blocks that end before are shared with whoever has only the others, so those
/// of an aLoRA alone are the base's. Virtual tokens belong to the whole set, whose list is then one from the first
/// position on. Empty when the content of a module has no name.
std::vector<CacheWeights> cache_weights(const SequenceModules& acting, const std::vector<JobModule>& modules,
                                        const FindResident& find, std::string_view salt);

}  // namespace attune
