#include "engine/module/module_overlaps.hpp"

#include <bitset>
#include <map>
#include <set>
#include <utility>

namespace attune {
namespace {

constexpr std::size_t kModules = 64;  ///< more than limits.modules ever allows; the others are not looked at
using ModuleSet = std::bitset<kModules>;

/// In the order in which a layer computes; what lies outside of the layers comes last.
enum class Site : std::uint8_t {
    input_norm,
    q,
    k,
    v,
    q_norm,
    k_norm,
    o,
    mlp_norm,
    gate,
    up,
    down,
    state,
    first_outside
};
enum class Outside : std::uint8_t { embedding, virtual_tokens, last_norm, head };

std::string_view word_of(Site site) {
    constexpr std::string_view kWords[] = {"input_layernorm", "q_proj",  "k_proj",    "v_proj",
                                           "q_norm",          "k_norm",  "o_proj",    "post_attention_layernorm",
                                           "gate_proj",       "up_proj", "down_proj", "state"};
    return kWords[static_cast<std::size_t>(site)];
}

std::string_view word_of(Outside site) {
    constexpr std::string_view kWords[] = {"embed_tokens", "virtual_tokens", "norm", "lm_head"};
    return kWords[static_cast<std::size_t>(site)];
}

Site site_of(Projection projection) {
    constexpr Site kSites[kProjections] = {Site::q, Site::k, Site::v, Site::o, Site::gate, Site::up, Site::down};
    return kSites[static_cast<std::size_t>(projection)];
}

Site site_of(NormSite norm) {
    switch (norm) {
        case NormSite::attention:
            return Site::input_norm;
        case NormSite::mlp:
            return Site::mlp_norm;
        case NormSite::query:
            return Site::q_norm;
        case NormSite::key:
            return Site::k_norm;
        case NormSite::last:
            break;
    }
    return Site::first_outside;
}

/// Who touches what.
struct Touched {
    std::map<std::pair<Site, int>, ModuleSet> layers;  // (site, layer)
    std::map<Outside, ModuleSet> outside;

    void projection(Projection projection, int layer, std::size_t module) {
        if (projection == Projection::head)
            outside[Outside::head].set(module);
        else
            layers[{site_of(projection), layer}].set(module);
    }
    void add(const Module& module, std::size_t number) {
        for (const auto& pair : module.pairs) projection(pair.projection, pair.layer, number);
        for (const auto& term : module.outputs) projection(term.projection, term.layer, number);
        for (const auto& term : module.inputs) projection(term.projection, term.layer, number);
        for (const auto& state : module.states) layers[{Site::state, state.layer}].set(number);
        for (const auto& norm : module.norms) {
            if (norm.site == NormSite::last)
                outside[Outside::last_norm].set(number);
            else
                layers[{site_of(norm.site), norm.layer}].set(number);
        }
        if (module.embedding) outside[Outside::embedding].set(number);
        if (module.head_rows) outside[Outside::head].set(number);
        if (module.virtual_tokens() > 0) outside[Outside::virtual_tokens].set(number);
    }
};

/// "0-3,7"
std::string ranges(const std::set<int>& layers) {
    std::string text;
    for (auto at = layers.begin(); at != layers.end();) {
        const int first = *at;
        int last = first;
        for (++at; at != layers.end() && *at == last + 1; ++at) ++last;
        text += (text.empty() ? "" : ",") + std::to_string(first);
        if (last > first) text += "-" + std::to_string(last);
    }
    return text;
}

/// Sets compare by their first modules first.
struct ByFirst {
    bool operator()(const ModuleSet& a, const ModuleSet& b) const {
        for (std::size_t i = 0; i < kModules; ++i)
            if (a[i] != b[i]) return a[i];
        return false;
    }
};

}  // namespace

std::vector<ModuleOverlap> module_overlaps(std::span<const NamedModule> modules) {
    if (modules.size() < 2) return {};
    Touched touched;
    for (std::size_t i = 0; i < modules.size() && i < kModules; ++i) touched.add(*modules[i].module, i);

    std::map<ModuleSet, std::map<Site, std::set<int>>, ByFirst> in_layers;
    std::map<ModuleSet, std::vector<std::string>, ByFirst> outside;
    for (const auto& [site, who] : touched.layers)
        if (who.count() > 1) in_layers[who][site.first].insert(site.second);
    for (const auto& [site, who] : touched.outside)
        if (who.count() > 1) outside[who].emplace_back(word_of(site));

    std::set<ModuleSet, ByFirst> sets;
    for (const auto& [who, unused] : in_layers) sets.insert(who);
    for (const auto& [who, unused] : outside) sets.insert(who);
    std::vector<ModuleOverlap> overlaps;
    for (const ModuleSet& who : sets) {
        std::vector<std::string> names;
        for (std::size_t i = 0; i < modules.size() && i < kModules; ++i)
            if (who[i]) names.push_back(modules[i].name);
        std::map<std::set<int>, std::vector<std::string>> by_layers;
        for (const auto& [site, layers] : in_layers[who]) by_layers[layers].emplace_back(word_of(site));
        for (auto& [layers, sites] : by_layers) overlaps.push_back({names, ranges(layers), std::move(sites)});
        if (auto& sites = outside[who]; !sites.empty()) overlaps.push_back({names, "", std::move(sites)});
    }
    return overlaps;
}

std::string overlap_text(const ModuleOverlap& overlap) {
    std::string text;
    for (const std::string& name : overlap.modules) text += (text.empty() ? "" : ", ") + name;
    text += ":";
    for (const std::string& site : overlap.projections) text += (text.back() == ':' ? " " : ", ") + site;
    if (!overlap.layers.empty()) {
        const bool one = overlap.layers.find_first_of(",-") == std::string::npos;
        text += (one ? " of layer " : " of layers ") + overlap.layers;
    }
    return text;
}

}  // namespace attune
