#include "engine/text/decoder.hpp"

#include "engine/text/decoder_steps.hpp"
#include "engine/text/unicode.hpp"

#include <nlohmann/json.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace attune {
namespace {

using nlohmann::json;

class StepChain final : public Decoder {
public:
    explicit StepChain(std::vector<std::unique_ptr<const DecoderStep>> steps) : steps_(std::move(steps)) {}

    std::unique_ptr<State> start(bool early) const override {
        auto state = std::make_unique<ChainState>();
        for (const auto& step : steps_) state->steps.push_back(step->start(early));
        return state;
    }
    std::string bytes_of(std::string_view token) const override {
        std::string text(token);
        for (const auto& step : steps_) text = step->bytes_of(std::move(text));
        return text;
    }

private:
    struct ChainState final : State {
        void push(std::string_view token, std::string& out) override {
            parts_.clear();
            parts_.push_back({std::string(token), true});
            run(0, out);
        }
        void finish(std::string& out) override {
            // Each step's rest passes through all later steps before those finish.
            for (std::size_t i = 0; i < steps.size(); ++i) {
                parts_.clear();
                steps[i]->finish(parts_);
                run(i + 1, out);
            }
        }
        std::unique_ptr<State> clone() const override {
            auto copy = std::make_unique<ChainState>();
            for (const auto& step : steps) copy->steps.push_back(step->clone());
            return copy;
        }
        std::vector<std::unique_ptr<DecoderStepState>> steps;

    private:
        /// Sends parts_ through the steps from `from` on.
        void run(std::size_t from, std::string& out) {
            for (std::size_t i = from; i < steps.size(); ++i) {
                next_.clear();
                for (DecoderPart& part : parts_) steps[i]->push(std::move(part), next_);
                std::swap(parts_, next_);
            }
            for (const DecoderPart& part : parts_) out += part.text;
        }
        // Between two calls these are nothing but room that need not be allocated again.
        std::vector<DecoderPart> parts_;
        std::vector<DecoderPart> next_;
    };
    std::vector<std::unique_ptr<const DecoderStep>> steps_;
};

/// What the steps so far mean for the next one.
struct Chain {
    std::vector<std::unique_ptr<const DecoderStep>> steps;
    bool fused = false;
};

Error unsupported(const std::string& what) {
    return make_error(Errc::unsupported, "tokenizer.json: decoder " + what + " is not supported");
}

Result<void> add_replace(const json& config, Chain& chain) {
    const json& pattern = config.at("pattern");
    const bool literal = pattern.contains("String");
    const std::string text = pattern.at(literal ? "String" : "Regex").get<std::string>();
    // Parts of the fused text are cut anywhere, so only a single character is sure to be seen whole.
    if (chain.fused && (!literal || count_code_points(text) != 1)) return unsupported("Replace of a run after Fuse");
    auto regex = literal ? Regex::literal(text) : Regex::compile(text);
    if (!regex) return regex.error();
    chain.steps.push_back(replace_step(std::move(*regex), config.at("content").get<std::string>()));
    return {};
}

Result<void> add_strip(const json& config, Chain& chain) {
    const std::string content = config.at("content").get<std::string>();
    const auto stop = config.value("stop", std::size_t{0});
    if (content.empty()) return unsupported("Strip of nothing");
    if (chain.fused && stop > 0) return unsupported("Strip of the end after Fuse");
    chain.steps.push_back(strip_step(code_point_at(content, 0).value, config.value("start", std::size_t{0}), stop));
    return {};
}

Result<void> add_steps(const json& config, Chain& chain) {
    const std::string type = config.at("type").get<std::string>();
    if (type == "Sequence") {
        for (const json& step : config.at("decoders")) {
            if (auto added = add_steps(step, chain); !added) return added;
        }
        return {};
    }
    if (type == "Replace") return add_replace(config, chain);
    if (type == "Strip") return add_strip(config, chain);
    if (type == "ByteLevel") {
        chain.steps.push_back(byte_level_step());
        chain.fused = true;
        return {};
    }
    if (chain.fused && type != "Fuse") return unsupported(type + " after Fuse");
    if (type == "Fuse") {
        chain.steps.push_back(fuse_step());
        chain.fused = true;
        return {};
    }
    if (type == "ByteFallback") {
        chain.steps.push_back(byte_fallback_step());
        return {};
    }
    if (type == "Metaspace") {
        const std::string scheme = config.value("prepend_scheme", std::string());
        const bool never = scheme == "never" || (scheme.empty() && !config.value("add_prefix_space", true));
        chain.steps.push_back(metaspace_step(config.value("replacement", std::string("\xE2\x96\x81")), !never));
        return {};
    }
    if (type == "BPEDecoder") {
        chain.steps.push_back(word_suffix_step(config.value("suffix", std::string("</w>"))));
        return {};
    }
    if (type == "WordPiece") {
        chain.steps.push_back(
            word_piece_step(config.value("prefix", std::string("##")), config.value("cleanup", true)));
        return {};
    }
    return unsupported(type);
}

}  // namespace

Result<std::unique_ptr<const Decoder>> Decoder::parse(const json& config) {
    using Parsed = Result<std::unique_ptr<const Decoder>>;
    Chain chain;
    if (config.is_null()) {
        chain.steps.push_back(join_step());
    } else if (auto added = add_steps(config, chain); !added) {
        return added.error();
    }
    return Parsed(std::make_unique<StepChain>(std::move(chain.steps)));
}

}  // namespace attune
