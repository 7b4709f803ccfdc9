#include "engine/model/rope.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace attune {

namespace {

constexpr double kTwoPi = 2 * std::numbers::pi;

// Below, operations are torch's and in transformers' order on purpose: at position 8000 a difference in the last bit of
// a frequency is an angle off by 5e-4.

torch::Tensor powers(const RopeConfig& rope, int head_dim) {
    const torch::Tensor exponents =
        torch::arange(0, head_dim, 2, torch::kInt64).to(torch::kFloat32) / static_cast<double>(head_dim);
    return torch::pow(rope.theta, exponents);
}

/// Long waves are stretched by the factor, short ones kept, those between interpolated.
torch::Tensor llama3(const RopeConfig& rope, const torch::Tensor& frequencies) {
    const torch::Tensor waves = kTwoPi / frequencies;
    const double longest = rope.original_context / rope.low_freq_factor;
    const double shortest = rope.original_context / rope.high_freq_factor;
    const torch::Tensor stretched = torch::where(waves > longest, frequencies / rope.factor, frequencies);
    const torch::Tensor smooth =
        (rope.original_context / waves - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
    const torch::Tensor between = (1 - smooth) * stretched / rope.factor + smooth * stretched;
    const torch::Tensor is_between = (waves >= shortest).logical_and(waves <= longest);
    return torch::where(is_between, between, stretched);
}

/// The dimension that turns `rotations` times within the original context.
double correction_dim(const RopeConfig& rope, double rotations, int head_dim) {
    return head_dim * std::log(rope.original_context / (rotations * kTwoPi)) / (2 * std::log(rope.theta));
}

torch::Tensor yarn(const RopeConfig& rope, int head_dim, const torch::Tensor& speeds) {
    double low = correction_dim(rope, rope.beta_fast, head_dim);
    double high = correction_dim(rope, rope.beta_slow, head_dim);
    if (rope.truncate) {
        low = std::floor(low);
        high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, static_cast<double>(head_dim - 1));
    if (low == high) high += 0.001;
    const torch::Tensor ramp = torch::clamp((torch::arange(head_dim / 2, torch::kFloat32) - low) / (high - low), 0, 1);
    const torch::Tensor keep = 1 - ramp;
    return 1.0 / (rope.factor * speeds) * (1 - keep) + 1.0 / speeds * keep;
}

torch::Tensor by_kind(const RopeConfig& rope, int head_dim) {
    const torch::Tensor speeds = powers(rope, head_dim);
    switch (rope.kind) {
        case RopeKind::standard:
            return 1.0 / speeds;
        case RopeKind::linear:
            return 1.0 / speeds / rope.factor;
        case RopeKind::llama3:
            return llama3(rope, 1.0 / speeds);
        case RopeKind::yarn:
            return yarn(rope, head_dim, speeds);
    }
    return {};
}

}  // namespace

torch::Tensor inverse_frequencies(const RopeConfig& rope, int head_dim) {
    const torch::Tensor frequencies = by_kind(rope, head_dim);
    if (rope.factors.empty()) return frequencies;
    return frequencies / torch::tensor(rope.factors);
}

Rope::Rope(const RopeConfig& rope, int head_dim, torch::Device device)
    : frequencies_(inverse_frequencies(rope, head_dim).to(device)), attention_factor_(rope.attention_factor) {}

std::pair<torch::Tensor, torch::Tensor> Rope::angles(const torch::Tensor& positions) const {
    const torch::Tensor angle = positions.to(torch::kFloat32).unsqueeze(1) * frequencies_;
    if (attention_factor_ == 1.0) return {torch::cos(angle), torch::sin(angle)};
    return {torch::cos(angle) * attention_factor_, torch::sin(angle) * attention_factor_};
}

void Rope::angles(std::span<const std::int32_t> positions, float* cos, float* sin) const {
    const float* frequencies = frequencies_.const_data_ptr<float>();
    const auto half = static_cast<std::size_t>(frequencies_.size(0));
    const auto factor = static_cast<float>(attention_factor_);
    for (const std::int32_t position : positions) {
        for (std::size_t i = 0; i < half; ++i) {
            const float angle = static_cast<float>(position) * frequencies[i];
            *cos++ = std::cos(angle) * factor;
            *sin++ = std::sin(angle) * factor;
        }
    }
}

}  // namespace attune
