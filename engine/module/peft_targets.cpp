// Which modules of the base a config speaks of, and with what scale.

#include "engine/module/peft_config.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>

namespace attune {
namespace {

bool name_matches(std::string_view path, std::string_view name) {
    return path == name ||
           (path.size() > name.size() && path.ends_with(name) && path[path.size() - name.size() - 1] == '.');
}

// The first path part of digits that stands after `container` and before another part. Without a container at least two
// parts stand before it (PEFT's `.*?\.[^.]*\.(\d+)\.`).
std::optional<int> layer_number(std::string_view path, std::string_view container) {
    for (std::size_t dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.', dot + 1)) {
        const std::size_t end = path.find('.', dot + 1);
        if (end == std::string_view::npos) break;
        const std::string_view before = path.substr(0, dot);
        const std::string_view part = path.substr(dot + 1, end - dot - 1);
        const bool digits = !part.empty() && part.size() < 9 &&
                            std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
        const bool placed =
            container.empty() ? before.find('.') != std::string_view::npos : name_matches(before, container);
        if (digits && placed) return std::stoi(std::string(part));
    }
    return std::nullopt;
}

}  // namespace

double PatternTable::lookup(std::string_view path, double otherwise) const {
    for (const auto& [pattern, value] : rows)
        if (pattern.match(path)) return value;
    return otherwise;
}

bool ModuleNames::contains(std::string_view path) const {
    if (all_linear) return true;
    if (pattern) return pattern->full_match(path);
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return name_matches(path, name); });
}

double PeftConfig::scale(std::string_view path, int true_rank) const {
    const double layer_alpha = alpha_pattern.lookup(path, alpha);
    return layer_alpha / (rslora ? std::sqrt(static_cast<double>(true_rank)) : true_rank);
}

bool PeftConfig::targets_layer(std::string_view path) const {
    if (!layers) return true;
    std::optional<int> number;
    if (layers_patterns.empty()) number = layer_number(path, "");
    for (const std::string& container : layers_patterns) {
        number = layer_number(path, container);
        if (number) break;
    }
    return number && std::find(layers->begin(), layers->end(), *number) != layers->end();
}

bool PeftConfig::is_target(std::string_view path, std::string_view model_type) const {
    if (excluded && excluded->contains(path)) return false;
    if (!targets_layer(path)) return false;
    if (targets) return targets->contains(path);
    // PEFT's own choices for llama, mistral and qwen.
    ModuleNames names;
    if (type == PeftType::ia3) {
        names.names = {model_type.starts_with("qwen") ? "q_proj" : "k_proj", "v_proj", "down_proj"};
    } else {
        names.names = {"q_proj", "v_proj"};
    }
    return names.contains(path);
}

bool PeftConfig::is_feedforward(std::string_view path) const {
    if (feedforward) return feedforward->contains(path);
    return name_matches(path, "down_proj");
}

}  // namespace attune
