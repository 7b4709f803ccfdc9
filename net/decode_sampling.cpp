#include "net/decode_sampling.hpp"

#include <boost/json/array.hpp>
#include <charconv>
#include <cmath>
#include <limits>

namespace attune {
namespace {

namespace json = boost::json;

constexpr std::int64_t kMaxInt = std::numeric_limits<std::int32_t>::max();
constexpr std::size_t kMaxStopIds = 256;

std::vector<std::string> decode_stops(FieldReader& fields, const LimitSettings& limits) {
    std::vector<std::string> stops;
    const auto add = [&](const json::value& value) {
        const auto* text = value.if_string();
        if (text == nullptr || text->empty() || text->size() > static_cast<std::size_t>(limits.stop_bytes))
            fields.fail("stop", "`stop` strings must have 1 to " + std::to_string(limits.stop_bytes) + " bytes, got " +
                                    describe(value) + ".");
        else
            stops.emplace_back(text->data(), text->size());
    };
    const auto* value = fields.find("stop");
    if (value == nullptr) return stops;
    if (!value->is_array()) {
        add(*value);
    } else if (const auto* list = fields.array("stop", static_cast<std::size_t>(limits.stops))) {
        for (const auto& item : *list) add(item);
    }
    return stops;
}

std::vector<TokenId> decode_stop_ids(FieldReader& fields, int vocab_size) {
    std::vector<TokenId> ids;
    const auto* list = fields.array("stop_token_ids", kMaxStopIds);
    if (list == nullptr) return ids;
    for (const auto& item : *list) {
        const auto id = as_integer(item);
        if (!id || *id < 0 || *id >= vocab_size)
            fields.fail("stop_token_ids", "`stop_token_ids` must be token ids from 0 to " +
                                              std::to_string(vocab_size - 1) + ", got " + describe(item) + ".");
        else
            ids.push_back(static_cast<TokenId>(*id));
    }
    return ids;
}

std::vector<std::pair<TokenId, float>> decode_logit_bias(FieldReader& fields, const DecodeContext& context) {
    std::vector<std::pair<TokenId, float>> biases;
    const auto* object = fields.object("logit_bias");
    if (object == nullptr) return biases;
    if (object->size() > static_cast<std::size_t>(context.limits.logit_bias)) {
        fields.fail("logit_bias", "`logit_bias` may have at most " + std::to_string(context.limits.logit_bias) +
                                      " entries, got " + std::to_string(object->size()) + ".");
        return biases;
    }
    for (const auto& [key, value] : *object) {
        std::int64_t id = -1;
        const auto [end, failure] = std::from_chars(key.data(), key.data() + key.size(), id);
        if (failure != std::errc{} || end != key.data() + key.size() || id < 0 || id >= context.info.vocab_size) {
            fields.fail("logit_bias", "`logit_bias` keys must be token ids from 0 to " +
                                          std::to_string(context.info.vocab_size - 1) + ", got " +
                                          describe(json::value(key)) + ".");
            continue;
        }
        const double bias = value.is_number() ? value.to_number<double>() : std::nan("");
        if (!(bias >= -100 && bias <= 100))
            fields.fail("logit_bias",
                        "`logit_bias` values must be numbers from -100 to 100, got " + describe(value) + ".");
        else
            biases.emplace_back(static_cast<TokenId>(id), static_cast<float>(bias));
    }
    return biases;
}

// Ranges that exclude one end cannot be told to FieldReader::number.
double positive(FieldReader& fields, std::string_view name, double high, double otherwise) {
    const auto value = fields.number(name, 0, high);
    if (value && *value == 0) fields.fail(name, "`" + fields.path(name) + "` must be above 0.");
    return value.value_or(otherwise);
}

}  // namespace

SamplingParams decode_sampling(FieldReader& fields, const DecodeContext& context) {
    const LimitSettings& limits = context.limits;
    SamplingParams sampling;
    sampling.temperature = fields.number("temperature", 0, 100).value_or(1);
    sampling.top_p = positive(fields, "top_p", 1, 1);
    // -1 is vLLM's older spelling of "all".
    sampling.top_k = static_cast<int>(std::max<std::int64_t>(0, fields.integer("top_k", -1, kMaxInt).value_or(0)));
    sampling.min_p = fields.number("min_p", 0, 1).value_or(0);
    sampling.repetition_penalty = positive(fields, "repetition_penalty", 100, 1);
    sampling.presence_penalty = fields.number("presence_penalty", -2, 2).value_or(0);
    sampling.frequency_penalty = fields.number("frequency_penalty", -2, 2).value_or(0);
    sampling.logit_bias = decode_logit_bias(fields, context);
    if (const auto seed = fields.integer("seed", 0, std::numeric_limits<std::int64_t>::max()))
        sampling.seed = static_cast<std::uint64_t>(*seed);
    sampling.n = static_cast<int>(fields.integer("n", 1, limits.n).value_or(1));
    if (const auto best_of = fields.integer("best_of", 1, limits.n); best_of && *best_of != sampling.n)
        fields.fail("best_of", "`best_of` other than `n` is not offered.");
    sampling.stop = decode_stops(fields, limits);
    sampling.stop_token_ids = decode_stop_ids(fields, context.info.vocab_size);
    sampling.include_stop_str_in_output = fields.boolean("include_stop_str_in_output").value_or(false);
    sampling.ignore_eos = fields.boolean("ignore_eos").value_or(false);
    sampling.skip_special_tokens = fields.boolean("skip_special_tokens").value_or(true);
    sampling.min_tokens = static_cast<int>(fields.integer("min_tokens", 0, kMaxInt).value_or(0));
    if (const auto count = fields.integer("prompt_logprobs", 0, limits.logprobs))
        sampling.prompt_logprobs = static_cast<int>(*count);
    return sampling;
}

}  // namespace attune
