#pragma once

#include "attune/token_event.hpp"
#include "engine/module/module.hpp"

#include <span>
#include <string>
#include <vector>

namespace attune {

struct NamedModule {
    std::string name;
    const Module* module = nullptr;
};

/// Where two or more of the modules touch the same thing, in few lines: those of one set of modules on the same layers
/// are one. In the order of the modules, then of the layers. Empty when they leave each other alone.
std::vector<ModuleOverlap> module_overlaps(std::span<const NamedModule> modules);

/// `overlaps` in words: `code, legal-qa: q_proj, v_proj of layers 0-29`.
std::string overlap_text(const ModuleOverlap& overlap);

}  // namespace attune
