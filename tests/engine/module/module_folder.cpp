#include "engine/module/module_folder.hpp"

#include <bit>
#include <cstring>
#include <fstream>

namespace attune::test {
namespace {

// Normal, exactly representable values only.
std::uint16_t to_f16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (bits >> 16) & 0x8000U;
    if ((bits & 0x7FFFFFFFU) == 0) return static_cast<std::uint16_t>(sign);
    if (((bits >> 23) & 0xFFU) == 0xFFU) return static_cast<std::uint16_t>(sign | 0x7C00U | ((bits & 0x7FFFFFU) >> 13));
    return static_cast<std::uint16_t>(sign | (((bits >> 23) & 0xFFU) - 112U) << 10 | ((bits >> 13) & 0x3FFU));
}

void append(std::string& data, const FileTensor& tensor) {
    for (const float value : tensor.values) {
        if (tensor.type_name == "F32") {
            data.append(reinterpret_cast<const char*>(&value), 4);
        } else {
            const std::uint16_t half = tensor.type_name == "F16"
                                           ? to_f16(value)
                                           : static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
            data.append(reinterpret_cast<const char*>(&half), 2);
        }
    }
}

}  // namespace

std::string safetensors_bytes(const FileTensors& tensors) {
    nlohmann::json header = {{"__metadata__", {{"format", "pt"}}}};
    std::string data;
    for (const auto& [name, tensor] : tensors) {
        const std::size_t begin = data.size();
        append(data, tensor);
        header[name] = {{"dtype", tensor.type_name}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
    }
    const std::string json = header.dump();
    const std::uint64_t length = json.size();
    return std::string(reinterpret_cast<const char*>(&length), 8) + json + data;
}

ModelShape small_base() {
    ModelShape base;
    base.model_type = "llama";
    base.hidden_size = 16;
    base.intermediate_size = 24;
    base.heads = 4;
    base.kv_heads = 2;
    base.head_dim = 8;
    base.vocab_size = 32;
    base.max_context = 64;
    base.layers.resize(2);
    return base;
}

std::string projection_path(int layer, Projection projection, const std::string& prefix) {
    return prefix + "layers." + std::to_string(layer) + (projection >= Projection::gate ? ".mlp." : ".self_attn.") +
           std::string(projection_name(projection));
}

ModuleFolder::ModuleFolder() {
    config = {{"peft_type", "LORA"},
              {"task_type", "CAUSAL_LM"},
              {"r", 4},
              {"lora_alpha", 8},
              {"target_modules", {"q_proj", "down_proj"}},
              {"bias", "none"}};
    for (const int layer : {0, 1}) {
        add_pair(layer, Projection::q, 4);
        add_pair(layer, Projection::down, 4);
    }
}

void ModuleFolder::add_pair(int layer, Projection projection, int rank, const std::string& prefix) {
    const ModelShape base = small_base();
    const auto filled = [&](std::int64_t rows, std::int64_t columns, int seed) {
        FileTensor tensor{{rows, columns}, {}};
        for (std::int64_t i = 0; i < rows * columns; ++i)
            tensor.values.push_back(static_cast<float>((i * 7 + seed * 3 + layer) % 17 - 8) / 16.0F);
        return tensor;
    };
    const std::string path = "base_model.model." + projection_path(layer, projection, prefix);
    tensors[path + ".lora_A.weight"] = filled(rank, base.in_features(projection), 1);
    tensors[path + ".lora_B.weight"] = filled(base.out_features(projection), rank, 2);
}

void ModuleFolder::write_text(const std::string& relative, const std::string& text) const {
    std::filesystem::create_directories((path() / relative).parent_path());
    std::ofstream(path() / relative, std::ios::binary) << text;
}

void ModuleFolder::write(const std::string& folder) const {
    const std::string prefix = folder.empty() ? "" : folder + "/";
    write_text(prefix + "adapter_config.json", config.dump(2));
    write_text(prefix + "adapter_model.safetensors", safetensors_bytes(tensors));
}

}  // namespace attune::test
