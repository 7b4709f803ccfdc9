#include "engine/module/adapter_tensors.hpp"

#include "engine/files/quote.hpp"
#include "engine/module/tensor_reader.hpp"

#include <array>
#include <charconv>
#include <optional>
#include <utility>

namespace attune {
namespace {

constexpr std::string_view kWrapper = "base_model.model.";
// Text models sit under one of these, also inside multimodal ones.
constexpr std::array<std::string_view, 3> kTrunks = {"model.", "language_model.model.", "model.language_model."};

struct NormName {
    std::string_view name;
    NormSite site;
};
constexpr NormName kLayerNorms[] = {{"input_layernorm", NormSite::attention},
                                    {"post_attention_layernorm", NormSite::mlp},
                                    {"self_attn.q_norm", NormSite::query},
                                    {"self_attn.k_norm", NormSite::key}};

bool is_mlp(Projection projection) {
    return projection == Projection::gate || projection == Projection::up || projection == Projection::down;
}

/// What stands behind `path` + "." in `name`, if it does.
std::optional<std::string_view> behind(std::string_view name, std::string_view path) {
    if (name.size() <= path.size() + 1 || !name.starts_with(path) || name[path.size()] != '.') return std::nullopt;
    return name.substr(path.size() + 1);
}

std::string layer_part(const AdapterSite& site) {
    if (site.kind == AdapterSite::Kind::norm) {
        for (const NormName& norm : kLayerNorms)
            if (norm.site == site.norm) return std::string(norm.name);
    }
    return (is_mlp(site.projection) ? "mlp." : "self_attn.") + std::string(projection_name(site.projection));
}

struct Found {
    AdapterSite site = {};
    std::string_view trunk = {};  ///< empty for the head, which stands beside it
    std::string_view parameter = {};
};

/// `rest`: what follows "layers.".
std::optional<Found> find_in_layer(std::string_view rest, std::string_view trunk) {
    Found found{.trunk = trunk};
    const auto [end, fault] = std::from_chars(rest.data(), rest.data() + rest.size(), found.site.layer);
    const auto digits = static_cast<std::size_t>(end - rest.data());
    // Another spelling of a number ("00") would be a second name for one tensor.
    if (fault != std::errc() || rest.substr(0, digits) != std::to_string(found.site.layer) || found.site.layer < 0 ||
        digits == rest.size() || rest[digits] != '.')
        return std::nullopt;
    rest.remove_prefix(digits + 1);
    for (int i = 0; i < kProjections; ++i) {
        found.site.projection = static_cast<Projection>(i);
        if (const auto parameter = behind(rest, layer_part(found.site))) {
            found.parameter = *parameter;
            return found;
        }
    }
    found.site.projection = {};
    found.site.kind = AdapterSite::Kind::norm;
    for (const NormName& norm : kLayerNorms) {
        found.site.norm = norm.site;
        if (const auto parameter = behind(rest, norm.name)) {
            found.parameter = *parameter;
            return found;
        }
    }
    return std::nullopt;
}

/// `name`: without the wrapper.
std::optional<Found> find_site(std::string_view name) {
    for (const std::string_view head : {"lm_head", "language_model.lm_head"})
        if (const auto parameter = behind(name, head)) return Found{{.projection = Projection::head}, "", *parameter};
    for (const std::string_view trunk : kTrunks) {
        if (!name.starts_with(trunk)) continue;
        const std::string_view rest = name.substr(trunk.size());
        if (const auto parameter = behind(rest, "embed_tokens"))
            return Found{{.kind = AdapterSite::Kind::embedding}, trunk, *parameter};
        if (const auto parameter = behind(rest, "norm"))
            return Found{{.kind = AdapterSite::Kind::norm, .norm = NormSite::last}, trunk, *parameter};
        if (rest.starts_with("layers."))
            if (auto found = find_in_layer(rest.substr(7), trunk)) return found;
    }
    return std::nullopt;
}

}  // namespace

std::string site_path(const AdapterSite& site) {
    if (site.kind == AdapterSite::Kind::embedding) return "model.embed_tokens";
    if (site.kind == AdapterSite::Kind::norm && site.norm == NormSite::last) return "model.norm";
    if (site.kind == AdapterSite::Kind::projection && site.projection == Projection::head) return "lm_head";
    return "model.layers." + std::to_string(site.layer) + "." + layer_part(site);
}

Result<AdapterTensors> sort_adapter_tensors(const SafetensorsHeader& header, const ModelShape& base) {
    AdapterTensors out;
    bool has_trunk = false;
    for (const StoredTensor& tensor : header.tensors) {
        const auto refuse = [&](const std::string& fault) {
            return make_error(Errc::invalid_module,
                              header.file_name + ": tensor " + in_quotes(tensor.name) + ": " + fault);
        };
        if (!has_plain_values(tensor))
            return refuse("dtype " + tensor.type_name + " is not supported, only F32, F16 and BF16");
        std::string_view name = tensor.name;
        for (const std::string_view shared : {"base_model.vera_A", "base_model.vera_B", "prompt_embeddings"})
            if (name == shared) out.shared.emplace(name.substr(name.rfind('.') + 1), &tensor);
        if (out.shared.contains(name.substr(name.rfind('.') + 1)) && !name.starts_with(kWrapper)) continue;
        const auto found =
            name.starts_with(kWrapper) ? find_site(name.substr(kWrapper.size())) : std::optional<Found>();
        if (!found) return refuse("this base has no place for it");
        if (found->site.layer >= base.layer_count())
            return refuse("this base has layers 0 to " + std::to_string(base.layer_count() - 1));
        if (!found->trunk.empty()) {
            if (has_trunk && out.trunk != found->trunk) return refuse("its prefix is not that of the other tensors");
            out.trunk = found->trunk;
            has_trunk = true;
        }
        SiteTensors& site = out.sites[found->site];
        site.site = found->site;
        site.path = name.substr(kWrapper.size(), name.size() - kWrapper.size() - found->parameter.size() - 1);
        if (!site.parameters.emplace(found->parameter, &tensor).second) return refuse("it is there under two names");
    }
    return out;
}

}  // namespace attune
