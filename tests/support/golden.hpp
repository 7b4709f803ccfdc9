#pragma once

// Reads the reference data under golden/ (see tests/data): models, adapters and what transformers and PEFT answer.
// Torch-free and header-only; link attune::files and attune_json. A missing or odd file throws, which fails the test.

#include "engine/files/safetensors.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace attune::golden {

/// Largest accepted difference of logits and log-probabilities in float32 (the measured noise is 1e-5).
inline constexpr float kTolerance = 1e-4F;

/// The one switch from "within rounding" to "the same bits", for kernels that promise it: ATTUNE_BITWISE=1.
/// It applies to comparisons of the engine with itself (alone against batched), never with the reference's numbers.
inline bool bitwise() {
    const char* value = std::getenv("ATTUNE_BITWISE");
    return value != nullptr && std::string(value) == "1";
}

/// Largest absolute difference allowed between two runs of the engine.
inline float self_tolerance(float tolerance = kTolerance) { return bitwise() ? 0.0F : tolerance; }

inline std::filesystem::path root() { return std::filesystem::path(ATTUNE_TEST_DATA) / "golden"; }
inline std::filesystem::path model_folder(const std::string& model) { return root() / "models" / model; }
inline std::filesystem::path adapter_folder(const std::string& model, const std::string& adapter) {
    return root() / "adapters" / model / adapter;
}

inline const std::vector<std::string>& models() {
    static const std::vector<std::string> kModels{"llama_gqa_tied", "llama3_rope", "qwen2_bias", "qwen3_qknorm",
                                                  "mistral_swa"};
    return kModels;
}

inline nlohmann::json read_json(const std::filesystem::path& path) {
    std::ifstream file(path);
    if (!file) throw std::runtime_error("golden file missing: " + path.filename().string());
    return nlohmann::json::parse(file);
}

struct Tensor {
    std::vector<std::int64_t> shape;
    std::vector<float> values;

    /// Row `i` of a matrix.
    std::vector<float> row(std::size_t i) const {
        const auto columns = static_cast<std::size_t>(shape.at(1));
        const auto begin = values.begin() + static_cast<std::ptrdiff_t>(i * columns);
        return {begin, begin + static_cast<std::ptrdiff_t>(columns)};
    }
};

/// All tensors of a safetensors file, as float32.
inline std::map<std::string, Tensor> read_tensors(const std::filesystem::path& path) {
    const auto header = read_safetensors_header(path);
    if (!header) throw std::runtime_error(header.error().message);
    const auto file = ReadOnlyFile::open(path);
    if (!file) throw std::runtime_error(file.error().message);
    std::map<std::string, Tensor> tensors;
    for (const StoredTensor& stored : header->tensors) {
        std::vector<std::byte> bytes(stored.bytes);
        if (auto ok = file->read(stored.begin, bytes); !ok) throw std::runtime_error(ok.error().message);
        Tensor tensor{stored.shape, {}};
        std::size_t count = 1;
        for (const std::int64_t extent : stored.shape) count *= static_cast<std::size_t>(extent);
        tensor.values.resize(count);
        if (!convert_to_f32(stored.type, bytes.data(), tensor.values.data(), count))
            throw std::runtime_error("golden tensor " + stored.name + " has no float type");
        tensors.emplace(stored.name, std::move(tensor));
    }
    return tensors;
}

struct TopTokens {
    std::vector<int> ids;
    std::vector<float> logprobs;
};

struct Prompt {
    std::vector<int> tokens;
    std::vector<int> continuation;  ///< 32 greedy tokens
    std::vector<TopTokens> top5;    ///< per step
    std::vector<float> margins;     ///< per step, best minus second log-probability
    int safe_steps = 0;             ///< leading steps whose margins all bind
    Tensor logits;                  // [tokens, vocab]
};

struct Case {
    std::string model;
    std::string name;
    std::vector<Prompt> prompts;

    /// Leading steps of a prompt that two runs of the engine must agree on: those with margins of at least `margin`.
    static int binding_steps(const Prompt& prompt, float margin = 1e-3F) {
        const auto low =
            std::find_if(prompt.margins.begin(), prompt.margins.end(), [&](float m) { return m < margin; });
        return static_cast<int>(low - prompt.margins.begin());
    }
};

/// A case below <data>/golden/<model>/.
inline Case read_case(const std::filesystem::path& data, const std::string& model, const std::string& name) {
    const auto stem = data / "golden" / model / name;
    const nlohmann::json json = read_json(stem.string() + ".json");
    const auto tensors = read_tensors(stem.string() + ".safetensors");
    Case out{model, name, {}};
    for (const nlohmann::json& entry : json.at("prompts")) {
        Prompt prompt;
        prompt.tokens = entry.at("input_ids").get<std::vector<int>>();
        prompt.continuation = entry.at("continuation").get<std::vector<int>>();
        prompt.margins = entry.at("margins").get<std::vector<float>>();
        prompt.safe_steps = entry.at("safe_steps").get<int>();
        for (const nlohmann::json& top : entry.at("top5"))
            prompt.top5.push_back(
                {top.at("ids").get<std::vector<int>>(), top.at("logprobs").get<std::vector<float>>()});
        prompt.logits = tensors.at("logits_" + std::to_string(out.prompts.size()));
        out.prompts.push_back(std::move(prompt));
    }
    return out;
}

/// A case of the adapters' data, e.g. ("qwen2_bias", "lora_r4"); "base" is the model alone.
inline Case read_case(const std::string& model, const std::string& name) { return read_case(root(), model, name); }

/// Largest absolute difference; infinite when the sizes differ or a value is not a number.
inline float max_difference(const std::vector<float>& a, const std::vector<float>& b) {
    if (a.size() != b.size()) return INFINITY;
    float largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        const float difference = std::fabs(a[i] - b[i]);
        if (std::isnan(difference)) return INFINITY;
        largest = std::max(largest, difference);
    }
    return largest;
}

}  // namespace attune::golden
