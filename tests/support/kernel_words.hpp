#pragma once

#include "engine/kernels/instruction_set.hpp"

#include <string>
#include <vector>

namespace attune::testing {

/// The settings of model.kernels that this machine can run on our kernels, "auto" among them.
inline std::vector<std::string> kernel_words() {
    std::vector<std::string> words;
    for (const char* word : {"auto", "x86-64-v4", "x86-64-v3", "baseline"})
        if (machine_runs(*parse_instruction_set(word))) words.emplace_back(word);
    return words;
}

}  // namespace attune::testing
