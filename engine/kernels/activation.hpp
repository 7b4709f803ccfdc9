#pragma once

#include "engine/module/module.hpp"

#include <cstddef>

namespace attune {

/// t[i] = act(t[i]); each value by itself. gelu is the erf form.
void activate(Activation activation, float* t, std::size_t count);

}  // namespace attune
