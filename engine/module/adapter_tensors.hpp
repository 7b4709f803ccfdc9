#pragma once

#include "attune/result.hpp"
#include "engine/files/safetensors.hpp"
#include "engine/model/model_shape.hpp"
#include "engine/module/module.hpp"

#include <compare>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace attune {

/// A part of the base that an adapter can sit on.
struct AdapterSite {
    enum class Kind : std::uint8_t { projection, norm, embedding };
    Kind kind = Kind::projection;
    int layer = 0;  ///< 0 for head, embedding and last norm
    Projection projection = Projection::q;
    NormSite norm = NormSite::attention;
    auto operator<=>(const AdapterSite&) const = default;
};

/// Where Hugging Face keeps it, relative to the causal LM: "model.layers.3.self_attn.q_proj", "lm_head".
std::string site_path(const AdapterSite& site);

/// The tensors of an adapter file that belong to one site, by what stands behind the site's path: "lora_A.weight".
struct SiteTensors {
    AdapterSite site;
    std::string path;  ///< the file's own, e.g. inside a multimodal model: what patterns of the config match
    std::map<std::string_view, const StoredTensor*> parameters;

    const StoredTensor* find(std::string_view parameter) const {
        const auto found = parameters.find(parameter);
        return found == parameters.end() ? nullptr : found->second;
    }
};

/// An adapter file sorted by site. Points into the header it was made from.
struct AdapterTensors {
    std::map<AdapterSite, SiteTensors> sites;
    /// Tensors that belong to no site, under their names without "base_model.": vera_A, vera_B, prompt_embeddings.
    std::map<std::string_view, const StoredTensor*> shared;
    std::string trunk = "model.";  ///< what stands before "layers." in the file
};

/// Errc::invalid_module naming a tensor that this base has no place for, whose dtype has no values, or whose prefix is
/// not that of the others.
Result<AdapterTensors> sort_adapter_tensors(const SafetensorsHeader& header, const ModelShape& base);

}  // namespace attune
