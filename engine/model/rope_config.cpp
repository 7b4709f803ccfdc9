#include "engine/model/rope_config.hpp"

#include <nlohmann/json.hpp>

#include <cmath>
#include <optional>
#include <set>
#include <string>

namespace attune {

namespace {

using Json = nlohmann::json;

Error bad(const std::string& what) { return make_error(Errc::invalid_argument, "config.json: " + what); }
Error refused(const std::string& what) { return make_error(Errc::unsupported, "config.json: " + what); }

/// One dictionary of rope parameters; remembers what was asked for, so that leftovers can be refused.
class RopeReader {
public:
    RopeReader(const Json& dict, std::string where) : dict_(dict), where_(std::move(where)) {}

    bool has(const char* key) const { return dict_.contains(key) && !dict_.at(key).is_null(); }

    double number(const char* key, double otherwise) {
        seen_.insert(key);
        if (!has(key)) return otherwise;
        const Json& value = dict_.at(key);
        if (!value.is_number() || !std::isfinite(value.get<double>())) {
            fail(bad("\"" + where_ + "." + key + "\" must be a number"));
            return otherwise;
        }
        return value.get<double>();
    }

    /// A number that must be there and positive.
    double positive(const char* key) {
        if (!has(key)) fail(bad("\"" + where_ + "." + key + "\" is missing"));
        const double value = number(key, 1.0);
        if (!(value > 0)) fail(bad("\"" + where_ + "." + key + "\" must be positive"));
        return value;
    }

    bool flag(const char* key, bool otherwise) {
        seen_.insert(key);
        if (!has(key)) return otherwise;
        if (!dict_.at(key).is_boolean()) fail(bad("\"" + where_ + "." + key + "\" must be true or false"));
        return dict_.at(key).is_boolean() ? dict_.at(key).get<bool>() : otherwise;
    }

    std::string kind() {
        seen_.insert({"rope_type", "type"});
        for (const char* key : {"rope_type", "type"}) {
            if (!has(key)) continue;
            if (dict_.at(key).is_string()) return dict_.at(key).get<std::string>();
            fail(bad("\"" + where_ + "." + key + "\" must be a string"));
        }
        return "default";
    }

    void fail(Error error) {
        if (!error_) error_ = std::move(error);
    }

    /// Refuses every key that nothing above looked at.
    std::optional<Error> finish() {
        for (const auto& [key, value] : dict_.items()) {
            if (value.is_null() || seen_.contains(key)) continue;
            if (key == "partial_rotary_factor" && value.is_number() && value.get<double>() == 1.0) continue;
            fail(refused("\"" + where_ + "." + key + "\" is not supported"));
        }
        return error_;
    }

    const std::string& where() const { return where_; }

private:
    const Json& dict_;
    std::string where_;
    std::set<std::string> seen_;
    std::optional<Error> error_;
};

double yarn_mscale(double scale, double mscale) { return scale <= 1 ? 1.0 : 0.1 * mscale * std::log(scale) + 1.0; }

/// transformers: the given factor, else the ratio of the two mscales when both are there, else the paper's value.
double yarn_attention_factor(RopeReader& reader, double factor) {
    const double mscale = reader.number("mscale", 0);
    const double mscale_all = reader.number("mscale_all_dim", 0);
    const double given = reader.number("attention_factor", 0);
    if (reader.has("attention_factor")) return given;
    if (mscale != 0 && mscale_all != 0) return yarn_mscale(factor, mscale) / yarn_mscale(factor, mscale_all);
    return yarn_mscale(factor, 1);
}

void read_yarn(RopeReader& reader, RopeConfig& rope, double max_positions) {
    // DeepSeek's spelling: without a factor it is the ratio of the two context lengths.
    rope.factor = reader.has("factor") ? reader.positive("factor") : max_positions / rope.original_context;
    rope.attention_factor = yarn_attention_factor(reader, rope.factor);
    // As transformers, a zero means "the default".
    rope.beta_fast = reader.number("beta_fast", 32);
    if (rope.beta_fast == 0) rope.beta_fast = 32;
    rope.beta_slow = reader.number("beta_slow", 1);
    if (rope.beta_slow == 0) rope.beta_slow = 1;
    rope.truncate = reader.flag("truncate", true);
}

}  // namespace

Result<ParsedRope> parse_rope(const Json& config) {
    static const Json kNone = Json::object();
    // transformers lets a non-empty rope_scaling win over rope_parameters.
    const char* where = "rope_parameters";
    for (const char* key : {"rope_parameters", "rope_scaling"}) {
        if (!config.contains(key) || config.at(key).is_null()) continue;
        if (!config.at(key).is_object()) return bad(std::string("\"") + key + "\" must be an object");
        if (!config.at(key).empty()) where = key;
    }
    const bool given = config.contains(where) && config.at(where).is_object();
    RopeReader reader(given ? config.at(where) : kNone, where);

    ParsedRope parsed;
    RopeConfig& rope = parsed.rope;
    if (config.contains("rope_theta") && !config.at("rope_theta").is_null()) {
        if (!config.at("rope_theta").is_number()) return bad("\"rope_theta\" must be a number");
        rope.theta = config.at("rope_theta").get<double>();
    }
    rope.theta = reader.number("rope_theta", rope.theta);
    if (!(rope.theta > 1)) return bad("\"rope_theta\" must be above 1");

    const double max_positions = config.at("max_position_embeddings").get<double>();
    const std::string kind = reader.kind();
    const bool has_original = kind == "llama3" || kind == "yarn";
    if (has_original) {
        rope.original_context = reader.number("original_max_position_embeddings", max_positions);
        // A value outside of the dictionary wins (transformers does this for Phi-like files).
        const char* key = "original_max_position_embeddings";
        if (config.contains(key) && config.at(key).is_number()) rope.original_context = config.at(key).get<double>();
        if (!(rope.original_context > 0)) return bad("\"original_max_position_embeddings\" must be positive");
    }

    if (kind == "default") {
        rope.kind = RopeKind::standard;
    } else if (kind == "linear") {
        rope.kind = RopeKind::linear;
        rope.factor = reader.positive("factor");
    } else if (kind == "dynamic") {
        rope.kind = RopeKind::standard;
        parsed.dynamic = true;
        reader.positive("factor");
        // Written by some exporters; the unscaled range does not depend on it.
        reader.number("original_max_position_embeddings", max_positions);
    } else if (kind == "llama3") {
        rope.kind = RopeKind::llama3;
        rope.factor = reader.positive("factor");
        rope.low_freq_factor = reader.positive("low_freq_factor");
        rope.high_freq_factor = reader.positive("high_freq_factor");
        if (rope.low_freq_factor == rope.high_freq_factor)
            return bad("\"low_freq_factor\" and \"high_freq_factor\" must differ");
    } else if (kind == "yarn") {
        rope.kind = RopeKind::yarn;
        read_yarn(reader, rope, max_positions);
    } else {
        return refused("rope type \"" + kind + "\" is not supported");
    }
    if (auto error = reader.finish()) return *error;
    return parsed;
}

}  // namespace attune
