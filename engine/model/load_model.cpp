#include "engine/files/hash.hpp"
#include "engine/model/llama_model.hpp"
#include "engine/model/model.hpp"
#include "engine/weights/base_audit.hpp"
#include "engine/weights/tensor_files.hpp"
#include "engine/weights/weight_audit.hpp"

#include <algorithm>
#include <string_view>

namespace attune {

namespace {

using Tensors = std::map<std::string, SourceTensor>;

constexpr std::uint64_t kStagingBytes = 1u << 20;
constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

bool is_float(StoredType type) {
    return type == StoredType::f32 || type == StoredType::f16 || type == StoredType::bf16;
}

/// Feeds a tensor's raw bytes to `take` in bounded pieces.
template <class Take>
Result<void> read_raw(const SourceTensor& source, Take&& take) {
    std::vector<std::byte> staging;
    for (std::uint64_t offset = 0; offset < source.stored.bytes; offset += staging.size()) {
        staging.resize(std::min(kStagingBytes, source.stored.bytes - offset));
        if (auto ok = source.file->read(source.stored.begin + offset, staging); !ok) return ok.error();
        take(std::span<const std::byte>(staging));
    }
    return {};
}

/// Old exporters stored this buffer, which follows from the config; transformers ignores it too.
bool is_ignored(std::string_view name) { return name.ends_with(".rotary_emb.inv_freq"); }

/// A tied checkpoint may hold the embedding twice. A different head would be silently lost, so it is refused.
Result<void> check_tied_head(const Tensors& tensors) {
    const SourceTensor& head = tensors.at(kHead);
    const SourceTensor& embedding = tensors.at(kEmbedding);
    const Error differs =
        make_error(Errc::invalid_argument, std::string("tensor \"") + kHead + "\" differs from \"" + kEmbedding +
                                               "\", but \"tie_word_embeddings\" is true");
    if (head.stored.type != embedding.stored.type || head.stored.shape != embedding.stored.shape) return differs;
    Xxh128 hashes[2];
    if (auto ok = read_raw(head, [&](auto bytes) { hashes[0].update(bytes); }); !ok) return ok;
    if (auto ok = read_raw(embedding, [&](auto bytes) { hashes[1].update(bytes); }); !ok) return ok;
    if (hashes[0].hex() != hashes[1].hex()) return differs;
    return {};
}

Result<void> check_tensors(const Tensors& tensors, const LlamaModel& model) {
    for (const auto& [name, place] : model.places()) {
        const auto found = tensors.find(name);
        if (found == tensors.end())
            return make_error(Errc::invalid_argument,
                              "tensor \"" + name + "\" is missing, expected " + shape_text(place.shape));
        const StoredTensor& stored = found->second.stored;
        if (stored.shape != place.shape)
            return make_error(Errc::invalid_argument, "tensor \"" + name + "\" is " + shape_text(stored.shape) +
                                                          ", the config wants " + shape_text(place.shape));
        if (!is_float(stored.type))
            return make_error(Errc::unsupported, "tensor \"" + name + "\" has type " + stored.type_name +
                                                     ", only F32, F16 and BF16 are supported");
    }
    for (const auto& [name, source] : tensors) {
        if (model.places().contains(name) || is_ignored(name)) continue;
        if (name == kHead && model.shape().tied_embeddings) {
            if (auto ok = check_tied_head(tensors); !ok) return ok;
            continue;
        }
        return make_error(Errc::invalid_argument, "tensor \"" + name + "\" " + shape_text(source.stored.shape) +
                                                      " has no place in model_type \"" + model.shape().model_type +
                                                      "\" with this config");
    }
    return {};
}

/// name NUL dtype NUL shape NUL; the raw bytes follow.
void feed_header(Sha256& checkpoint, const StoredTensor& stored) {
    using namespace std::string_view_literals;
    checkpoint.update(stored.name);
    checkpoint.update("\0"sv);
    checkpoint.update(stored.type_name);
    checkpoint.update("\0"sv);
    std::string shape;
    for (const std::int64_t extent : stored.shape) shape += (shape.empty() ? "" : ",") + std::to_string(extent);
    checkpoint.update(shape);
    checkpoint.update("\0"sv);
}

/// Fills the weights and returns the checkpoint id: one pass over the files in name order serves both.
Result<std::string> fill(const Tensors& tensors, const LlamaModel& model) {
    Sha256 checkpoint;
    for (const auto& [name, source] : tensors) {
        feed_header(checkpoint, source.stored);
        const auto place = model.places().find(name);
        auto ok = place != model.places().end() ? place->second.weight->load(place->second.part, source, &checkpoint)
                                                : read_raw(source, [&](auto bytes) { checkpoint.update(bytes); });
        if (!ok) return ok.error();
    }
    return "sha256:" + checkpoint.hex();
}

}  // namespace

Result<std::unique_ptr<Model>> load_model(const std::filesystem::path& folder, const ModelOptions& options) {
    if (options.dtype != torch::kFloat32 && options.dtype != torch::kBFloat16)
        return make_error(Errc::invalid_argument, "weights are stored as float32 or bfloat16 only");
    auto config = read_model_config(folder);
    if (!config) return config.error();
    auto tensors = open_tensor_files(folder);
    if (!tensors) return tensors.error();

    // Outside of inference mode: a later backward pass through these weights needs ordinary tensors.
    const c10::InferenceMode ordinary(false);
    auto model = std::make_unique<LlamaModel>(std::move(*config), options);
    if (auto ok = check_tensors(*tensors, *model); !ok) return ok.error();
    auto checkpoint = fill(*tensors, *model);
    if (!checkpoint) return checkpoint.error();
    model->set_audit(make_base_audit(model->weights(), std::move(*checkpoint)));
    return std::unique_ptr<Model>(std::move(model));
}

}  // namespace attune
