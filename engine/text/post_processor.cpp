#include "engine/text/post_processor.hpp"

#include <nlohmann/json.hpp>

#include <string>

namespace attune {
namespace {

using nlohmann::json;

Result<PostProcessor> parse_template(const json& config) {
    PostProcessor made;
    bool seen_text = false;
    const json& specials = config.at("special_tokens");
    for (const json& part : config.at("single")) {
        if (part.contains("Sequence")) {
            if (seen_text) {
                return make_error(Errc::unsupported, "tokenizer.json: TemplateProcessing repeats the text");
            }
            seen_text = true;
            continue;
        }
        const std::string name = part.at("SpecialToken").at("id").get<std::string>();
        for (const json& id : specials.at(name).at("ids")) {
            (seen_text ? made.after : made.before).push_back(id.get<TokenId>());
        }
    }
    if (!seen_text) return make_error(Errc::unsupported, "tokenizer.json: TemplateProcessing leaves the text out");
    return made;
}

}  // namespace

Result<PostProcessor> PostProcessor::parse(const json& config) {
    if (config.is_null()) return PostProcessor{};
    const std::string type = config.at("type").get<std::string>();
    if (type == "ByteLevel") return PostProcessor{};  // trims offsets only
    if (type == "TemplateProcessing") return parse_template(config);
    if (type == "BertProcessing" || type == "RobertaProcessing") {
        return PostProcessor{{config.at("cls").at(1).get<TokenId>()}, {config.at("sep").at(1).get<TokenId>()}};
    }
    if (type == "Sequence") {
        PostProcessor all;
        for (const json& step : config.at("processors")) {
            auto parsed = parse(step);
            if (!parsed) return parsed;
            all.before.insert(all.before.begin(), parsed->before.begin(), parsed->before.end());
            all.after.insert(all.after.end(), parsed->after.begin(), parsed->after.end());
        }
        return all;
    }
    return make_error(Errc::unsupported, "tokenizer.json: post_processor " + type + " is not supported");
}

}  // namespace attune
