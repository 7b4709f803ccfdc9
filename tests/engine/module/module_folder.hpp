#pragma once

#include "engine/files/safetensors.hpp"
#include "engine/model/model_shape.hpp"
#include "support/temporary_folder.hpp"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace attune::test {

/// A tensor to be written, values as float32 unless `type_name` says F16 or BF16 (then `bits`).
struct FileTensor {
    std::vector<std::int64_t> shape;
    std::vector<float> values;
    std::string type_name = "F32";
};

using FileTensors = std::map<std::string, FileTensor>;

/// The bytes of a safetensors file. Half types are made by cutting (bf16) or for small exact values (f16).
std::string safetensors_bytes(const FileTensors& tensors);

/// A base of 2 layers: hidden 16, 4 heads of 8 (so q_proj is not square), 2 KV heads, intermediate 24, vocabulary 32.
ModelShape small_base();

/// The path of a projection as Hugging Face names it, with `prefix` before "layers".
std::string projection_path(int layer, Projection projection, const std::string& prefix = "model.");

/// A folder that is removed at the end. `config` and `tensors` start as a good LoRA of rank 4, alpha 8, on q_proj and
/// down_proj of both layers; tests change them and write().
class ModuleFolder {
public:
    ModuleFolder();

    nlohmann::ordered_json config;
    FileTensors tensors;

    const std::filesystem::path& path() const { return folder_.path(); }
    /// Adds both halves of a pair with a fixed pattern of values.
    void add_pair(int layer, Projection projection, int rank, const std::string& prefix = "model.");
    void write_text(const std::string& relative, const std::string& text) const;
    /// Writes both files below `folder` ("" = the module's own).
    void write(const std::string& folder = "") const;

private:
    TemporaryFolder folder_;
};

}  // namespace attune::test
