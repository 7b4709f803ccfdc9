#pragma once

// Model folders made by tests: a writer of small safetensors files and a temporary folder.

#include "engine/files/safetensors.hpp"
#include "engine/kernels/cpu_kernels.hpp"
#include "support/golden.hpp"
#include "support/temporary_folder.hpp"

#include <nlohmann/json.hpp>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace attune::testing {

struct RawTensor {
    std::string type;  ///< "F32", "BF16", …
    std::vector<std::int64_t> shape;
    std::string bytes;
};

inline RawTensor f32_tensor(std::vector<std::int64_t> shape, const std::vector<float>& values) {
    return {"F32", std::move(shape),
            std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float))};
}

inline RawTensor bf16_tensor(std::vector<std::int64_t> shape, const std::vector<float>& values) {
    std::string bytes;
    for (const float value : values) {
        const Bf16 element = to_bf16(value);
        bytes.append(reinterpret_cast<const char*>(&element), sizeof element);
    }
    return {"BF16", std::move(shape), std::move(bytes)};
}

inline void write_safetensors(const std::filesystem::path& path, const std::map<std::string, RawTensor>& tensors) {
    nlohmann::json header = nlohmann::json::object();
    std::string data;
    for (const auto& [name, tensor] : tensors) {
        header[name] = {{"dtype", tensor.type},
                        {"shape", tensor.shape},
                        {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
        data += tensor.bytes;
    }
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const std::uint64_t size = text.size();
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&size), sizeof size);
    file << text << data;
}

/// All tensors of a golden model, ready to be changed and written again.
inline std::map<std::string, RawTensor> golden_tensors(const std::string& model) {
    std::map<std::string, RawTensor> out;
    for (const auto& [name, tensor] : golden::read_tensors(golden::model_folder(model) / "model.safetensors"))
        out.emplace(name, f32_tensor(tensor.shape, tensor.values));
    return out;
}

class TempFolder : public TemporaryFolder {
public:
    /// A golden model's config.json with changes.
    void write_config(const std::string& model, const nlohmann::json& change = nlohmann::json::object()) const {
        nlohmann::json config = golden::read_json(golden::model_folder(model) / "config.json");
        config.update(change);
        write("config.json", config.dump());
    }
};

}  // namespace attune::testing
