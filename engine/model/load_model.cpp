#include "engine/files/hash.hpp"
#include "engine/files/model_path.hpp"
#include "engine/files/quote.hpp"
#include "engine/kernels/bf16_dot.hpp"
#include "engine/model/base_values.hpp"
#include "engine/model/gguf_names.hpp"
#include "engine/model/llama_model.hpp"
#include "engine/model/model.hpp"
#include "engine/weights/base_audit.hpp"
#include "engine/weights/tensor_files.hpp"
#include "engine/weights/weight_audit.hpp"
#include "engine/weights/zero_pages.hpp"

#include <algorithm>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace attune {

namespace {

// Both by the names in the files.
using Tensors = std::map<std::string, SourceTensor>;
using Places = std::map<std::string, WeightPlace>;

constexpr std::uint64_t kStagingBytes = 1u << 20;
constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

bool is_supported(StoredType type) {
    return type == StoredType::f32 || type == StoredType::f16 || type == StoredType::bf16 ||
           block_elements(type) > 1;  // all of these are decoded by convert_to_f32
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

/// What the model needs, by the names its files use.
Places places_in_files(const LlamaModel& model, bool gguf) {
    if (!gguf) return model.places();
    Places places;
    for (const auto& [name, place] : model.places()) places.emplace(gguf_tensor_name(name), place);
    return places;
}

/// Tells the sources of a GGUF file which of them have their rows in another order.
void mark_pairs(Tensors& tensors, const LlamaModel& model) {
    for (const auto& [name, place] : model.places()) {
        const auto found = tensors.find(gguf_tensor_name(name));
        if (found != tensors.end() && is_stored_in_pairs(name, model.shape().model_type))
            found->second.paired_rows = model.shape().head_dim;
    }
}

/// Old exporters stored the buffer inv_freq, which follows from the config; transformers ignores it too. The factors of
/// a GGUF file were read with its config.
bool has_no_place(std::string_view name, bool gguf) {
    return gguf ? name == "rope_freqs.weight" : name.ends_with(".rotary_emb.inv_freq");
}

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

Result<void> check_tensors(const Tensors& tensors, const Places& places, const ModelShape& shape, bool gguf) {
    for (const auto& [name, place] : places) {
        const auto found = tensors.find(name);
        if (found == tensors.end())
            return make_error(Errc::invalid_argument,
                              "tensor \"" + name + "\" is missing, expected " + shape_text(place.shape));
        const StoredTensor& stored = found->second.stored;
        if (stored.shape != place.shape)
            return make_error(Errc::invalid_argument, "tensor \"" + name + "\" is " + shape_text(stored.shape) +
                                                          ", the config wants " + shape_text(place.shape));
        if (!is_supported(stored.type))
            return make_error(Errc::unsupported,
                              "tensor \"" + name + "\" has type " + stored.type_name + ", only F32, F16" +
                                  (gguf ? ", BF16, Q4_0 to Q8_0 and Q2_K to Q6_K" : " and BF16") + " are supported");
    }
    for (const auto& [name, source] : tensors) {
        if (places.contains(name) || has_no_place(name, gguf)) continue;
        if (!gguf && name == kHead && shape.tied_embeddings) {
            if (auto ok = check_tied_head(tensors); !ok) return ok;
            continue;
        }
        return make_error(Errc::invalid_argument, "tensor \"" + name + "\" " + shape_text(source.stored.shape) +
                                                      " has no place in model_type \"" + shape.model_type +
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

/// Brings the weights' pages in, in the order in which fill() writes them: clearing them is half of its work.
class PageAhead {
public:
    PageAhead(const Tensors& tensors, const Places& places) {
        for (const auto& [name, source] : tensors) {
            const auto place = places.find(name);
            if (place == places.end()) continue;
            const Weight& weight = *place->second.weight;
            if (weight.device().is_cpu()) spans_.emplace_back(weight.address(), weight.bytes());
        }
        thread_ = std::jthread([this](const std::stop_token& stop) {
            for (const auto& [begin, bytes] : spans_) {
                if (stop.stop_requested()) return;
                populate_pages(begin, bytes);
            }
        });
    }

private:
    std::vector<std::pair<const void*, std::size_t>> spans_;
    std::jthread thread_;  // last: it reads the spans
};

/// Fills the weights and returns the checkpoint id: one pass over the files in name order serves both. Hashing and the
/// clearing of pages go on beside it.
Result<std::string> fill(const Tensors& tensors, const Places& places) {
    const PageAhead ahead(tensors, places);
    Sha256 checkpoint = Sha256::on_own_thread();
    for (const auto& [name, source] : tensors) {
        feed_header(checkpoint, source.stored);
        const auto place = places.find(name);
        auto ok = place != places.end() ? place->second.weight->load(place->second.part, source, &checkpoint)
                                        : read_raw(source, [&](auto bytes) { checkpoint.update(bytes); });
        if (!ok) return ok.error();
    }
    return "sha256:" + checkpoint.hex();
}

/// How a tensor is held.
Quant quant_for(const std::string& name, const StoredTensor& stored, WeightBits bits) {
    if (stored.shape.size() != 2 || stored.shape.back() % kQuantGroup != 0) return Quant::none;
    const Quant own = quant_of(stored.type);
    switch (bits) {
        case WeightBits::full:
            return Quant::none;
        case WeightBits::stored:
            return own != Quant::none || block_elements(stored.type) == 1 ? own : Quant::int8;
        case WeightBits::int8:
            return Quant::int8;
        case WeightBits::int4:
            if (own == Quant::int4 || own == Quant::int4_min) return own;
            return name == kEmbedding || name == kHead ? Quant::int8 : Quant::int4_min;
    }
    return Quant::none;
}

struct OpenedModel {
    std::unique_ptr<LlamaModel> model;  ///< its weights are zeros
    Tensors tensors;
    Places places;
};

/// Reads config and headers and finds every tensor's place.
Result<OpenedModel> open_model(const std::filesystem::path& path, const ModelOptions& options) {
    if (options.dtype != torch::kFloat32 && options.dtype != torch::kBFloat16)
        return make_error(Errc::invalid_argument, "weights are stored as float32 or bfloat16, int8 or 4-bit only");
    const bool kernels = (options.device.is_cpu() || options.device.is_meta()) && !options.torch_kernels;
    if (!kernels && (options.bits == WeightBits::int8 || options.bits == WeightBits::int4))
        return make_error(
            Errc::unsupported,
            "model.dtype int8 and int4 need the CPU kernels: model.device \"cpu\", model.kernels \"auto\"",
            "model.dtype");
    if (options.bf16_activations && kernels && bf16_dot_kernels() == nullptr)
        return make_error(Errc::unsupported,
                          "model.activations is bf16, which takes a processor with AVX512-BF16 and model.kernels "
                          "\"auto\"",
                          "model.activations");
    auto config = read_model_config(path);
    if (!config) return config.error();
    auto tensors = open_tensor_files(path);
    if (!tensors) return tensors.error();

    // Outside of inference mode: a later backward pass through these weights needs ordinary tensors.
    const c10::InferenceMode ordinary(false);
    const bool gguf = is_gguf_file(path);
    const WeightBits bits = kernels ? options.bits : WeightBits::full;
    auto model = std::make_unique<LlamaModel>(std::move(*config), options, [&](const std::string& name) {
        const auto found = tensors->find(gguf ? gguf_tensor_name(name) : name);
        return found == tensors->end() ? Quant::none : quant_for(name, found->second.stored, bits);
    });
    Places places = places_in_files(*model, gguf);
    if (auto ok = check_tensors(*tensors, places, model->shape(), gguf); !ok) return ok.error();
    if (gguf) mark_pairs(*tensors, *model);
    return OpenedModel{std::move(model), *std::move(tensors), std::move(places)};
}

}  // namespace

std::optional<std::pair<torch::Dtype, WeightBits>> weight_form(std::string_view word) {
    if (word == "f32") return std::pair(torch::kFloat32, WeightBits::full);
    if (word == "bf16") return std::pair(torch::kBFloat16, WeightBits::full);
    if (word == "auto") return std::pair(torch::kBFloat16, WeightBits::stored);
    if (word == "int8") return std::pair(torch::kBFloat16, WeightBits::int8);
    if (word == "int4") return std::pair(torch::kBFloat16, WeightBits::int4);
    return std::nullopt;
}

Result<std::unique_ptr<Model>> load_model(const std::filesystem::path& path, const ModelOptions& options) {
    auto opened = open_model(path, options);
    if (!opened) return opened.error();
    auto checkpoint = fill(opened->tensors, opened->places);
    if (!checkpoint) return checkpoint.error();
    opened->model->set_audit(make_base_audit(opened->model->weights(), std::move(*checkpoint)));
    return std::unique_ptr<Model>(std::move(opened->model));
}

Result<std::shared_ptr<const BaseValues>> open_base_values(const std::filesystem::path& model, std::string_view dtype) {
    const auto form = weight_form(dtype);
    if (!form) return make_error(Errc::invalid_argument, "weights cannot be stored as \"" + std::string(dtype) + "\"");
    // On the meta device weights have shapes and no memory.
    auto opened = open_model(model, {.device = torch::kMeta, .dtype = form->first, .bits = form->second});
    if (!opened) return opened.error();
    for (auto& [name, place] : opened->places) place.weight->set_source(place.part, opened->tensors.at(name));
    return opened->model->base_values();
}

}  // namespace attune
