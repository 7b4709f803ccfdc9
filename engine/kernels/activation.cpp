#include "engine/kernels/activation.hpp"

#include "engine/kernels/lora.hpp"

#include <cmath>
#include <numbers>

namespace attune {

void activate(Activation activation, float* t, std::size_t count) {
    switch (activation) {
        case Activation::identity:
            return;
        case Activation::tanh:
            return lora_kernels().tanh(t, count);
        case Activation::relu:
            for (std::size_t i = 0; i < count; ++i) t[i] = t[i] < 0 ? 0.0F : t[i];  // NaN stays NaN
            return;
        case Activation::silu:
            for (std::size_t i = 0; i < count; ++i) t[i] = t[i] / (1.0F + std::exp(-t[i]));
            return;
        case Activation::gelu:
            for (std::size_t i = 0; i < count; ++i)
                t[i] = 0.5F * t[i] * (1.0F + std::erf(t[i] / std::numbers::sqrt2_v<float>));
            return;
    }
}

}  // namespace attune
