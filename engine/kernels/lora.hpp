#pragma once

#include <cstddef>
#include <cstdint>

namespace attune {

/// Outputs per panel of a packed B: one vector of floats.
inline constexpr int kLoraPanelOutputs = 16;

/// One module on one projection, for some rows of a step: y[row] += (weight * scale) * ((x[row] A^T) B^T).
/// Elements of A and B are float or bfloat16, widened; sums are float32. Each sum is one chain over the columns (16
/// lanes, then a fixed tree) and over the ranks in order, so a row's bits do not depend on the other rows of the call.
struct LoraCall {
    const float* x = nullptr;  // [.., in]
    std::ptrdiff_t x_stride = 0;
    float* y = nullptr;  // [.., out], written in place
    std::ptrdiff_t y_stride = 0;
    const std::int32_t* rows = nullptr;  // [count] rows of x and y
    const float* weights = nullptr;      // [count] the module's weight for each row
    int count = 0;
    int in = 0;
    int out = 0;
    int rank = 0;
    float scale = 1.0F;
    /// [rank, in]. Null: (x A^T)[k] is the sum of x[j] over all j = k (mod rank), MiSS's shards; with rank == in, x.
    const void* a = nullptr;
    const void* b = nullptr;  // [ceil(out / 16)][rank][16], padded with zeros
};

/// The loops in one instruction set. On the calling thread; the caller splits rows.
struct LoraKernels {
    const char* name;  ///< x86-64-v4, x86-64-v3, baseline
    /// `scratch` holds count * rank floats.
    void (*apply_f32)(const LoraCall&, float* scratch);
    void (*apply_bf16)(const LoraCall&, float* scratch);
    /// The halves of apply: t = x A^T, then y += (weight * scale) * (t B^T). t: [count, rank].
    void (*shrink_f32)(const LoraCall&, float* t);
    void (*shrink_bf16)(const LoraCall&, float* t);
    void (*expand_f32)(const LoraCall&, const float* t);
    void (*expand_bf16)(const LoraCall&, const float* t);
    /// y += weight * gain * (base + bias), element by element over n values; bias null: without. base may be y.
    void (*add_gain)(float* y, const float* gain, float weight, const float* base, const float* bias, int n);
    /// t[i] = tanh(t[i]), within 2 ulp; each value by itself.
    void (*tanh)(float* t, std::size_t n);
};

/// The best set that may_use() allows.
const LoraKernels& lora_kernels();
/// One set by name, for tests that compare them; null when this machine cannot run it.
const LoraKernels* lora_kernels(const char* name);

/// Elements of a packed B.
constexpr std::size_t packed_b_elements(int out, int rank) {
    return static_cast<std::size_t>((out + kLoraPanelOutputs - 1) / kLoraPanelOutputs) * kLoraPanelOutputs *
           static_cast<std::size_t>(rank);
}

/// [out, rank] -> panels, as float32 or as bfloat16 (nearest even).
void pack_lora_b(const float* b, int out, int rank, float* panels);
void pack_lora_b(const float* b, int out, int rank, std::uint16_t* panels);
/// The same conversion without a change of order.
void to_bf16_array(const float* from, std::size_t count, std::uint16_t* to);

}  // namespace attune
