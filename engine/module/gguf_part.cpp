#include "engine/module/gguf_part.hpp"

#include "engine/files/quote.hpp"
#include "engine/module/tensor_reader.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

namespace attune {
namespace {

struct GgufName {
    std::string_view name;
    Projection projection;
};
constexpr GgufName kProjectionNames[] = {{"attn_q", Projection::q},      {"attn_k", Projection::k},
                                         {"attn_v", Projection::v},      {"attn_output", Projection::o},
                                         {"ffn_gate", Projection::gate}, {"ffn_up", Projection::up},
                                         {"ffn_down", Projection::down}};

class Planner {
public:
    Planner(const GgufHeader& header, const ModelShape& base, int max_rank)
        : header_(header), base_(base), max_rank_(max_rank) {}

    Result<GgufPlan> plan() {
        const auto architecture = header_.text("general.architecture");
        if (!architecture) return architecture.error();
        if (*architecture == "controlvector") return plan_directions();
        const auto type = header_.text("general.type");
        if (!type) return type.error();
        if (*type != "adapter") return refuse("it is neither an adapter nor a control vector");
        const auto kind = header_.text("adapter.type");
        if (!kind) return kind.error();
        if (*kind != "lora")
            return refuse("adapter.type is " + in_quotes(kind->value_or("")) + ", only lora is supported");
        // llama.cpp's name for mistral's shape is llama's.
        const std::string wanted = base_.model_type == "mistral" ? "llama" : base_.model_type;
        if (*architecture != wanted)
            return refuse("general.architecture is " + in_quotes(architecture->value_or("")) + ", this base is " +
                          in_quotes(wanted));
        return plan_lora(wanted == "llama");
    }

private:
    Error refuse(const std::string& fault) const {
        return make_error(Errc::invalid_module, header_.file_name + ": " + fault);
    }
    Error refuse(const StoredTensor& tensor, const std::string& fault) const {
        return refuse("tensor " + in_quotes(tensor.name) + ": " + fault);
    }

    // ---- control vectors

    Result<GgufPlan> plan_directions() {
        GgufPlan plan;
        plan.kind = "control_vector";
        const auto layers = header_.integer("controlvector.layer_count");
        if (!layers) return layers.error();
        if (*layers && **layers > base_.layer_count())
            return refuse("controlvector.layer_count is " + std::to_string(**layers) + ", this base has " +
                          std::to_string(base_.layer_count()) + " layers");
        for (const StoredTensor& tensor : header_.tensors) {
            const std::string_view name = tensor.name;
            GgufPlan::Direction direction{0, &tensor};
            const std::string_view number = name.starts_with("direction.") ? name.substr(10) : std::string_view();
            const auto [end, fault] = std::from_chars(number.data(), number.data() + number.size(), direction.layer);
            if (number.empty() || fault != std::errc() || number != std::to_string(direction.layer))
                return refuse(tensor, "a control vector holds direction.N only");
            // N is the 0-based block whose output it is added to; llama.cpp cannot address block 0 either.
            if (direction.layer < 1 || direction.layer >= base_.layer_count())
                return refuse(tensor, "it may be direction.1 to direction." + std::to_string(base_.layer_count() - 1));
            if (tensor.type != StoredType::f32) return refuse(tensor, "it is " + tensor.type_name + ", not F32");
            if (tensor.shape != std::vector<std::int64_t>{base_.hidden_size})
                return refuse(tensor, "it is " + shape_text(tensor.shape) + ", this base wants [" +
                                          std::to_string(base_.hidden_size) + "]");
            plan.directions.push_back(direction);
            plan.parsed_bytes += sizeof(StateLayer) + static_cast<std::uint64_t>(base_.hidden_size) * sizeof(float);
        }
        if (plan.directions.empty()) return refuse("it holds no direction");
        std::sort(plan.directions.begin(), plan.directions.end(),
                  [](const auto& x, const auto& y) { return x.layer < y.layer; });
        return plan;
    }

    // ---- LoRA

    struct Site {
        int layer = 0;
        Projection projection{};
        bool embedding = false;
        auto operator<=>(const Site&) const = default;
    };

    /// "blk.3.attn_q.weight" -> where it sits.
    std::optional<Site> find_site(std::string_view name) const {
        if (name == "token_embd.weight") return Site{.embedding = true};
        if (name == "output.weight") return Site{.projection = Projection::head};
        if (!name.starts_with("blk.") || !name.ends_with(".weight")) return std::nullopt;
        name = name.substr(4, name.size() - 4 - 7);
        Site site;
        const auto dot = name.find('.');
        const std::string_view number = name.substr(0, dot);
        const auto [end, fault] = std::from_chars(number.data(), number.data() + number.size(), site.layer);
        if (dot == std::string_view::npos || fault != std::errc() || number != std::to_string(site.layer))
            return std::nullopt;
        for (const GgufName& known : kProjectionNames)
            if (name.substr(dot + 1) == known.name) {
                site.projection = known.projection;
                return site;
            }
        return std::nullopt;
    }

    Result<GgufPlan> plan_lora(bool permuted) {
        const auto alpha = header_.real("adapter.lora.alpha");
        if (!alpha) return alpha.error();
        std::map<Site, GgufPlan::Pair> pairs;
        for (const StoredTensor& tensor : header_.tensors) {
            const std::string_view name = tensor.name;
            const bool is_a = name.ends_with(".lora_a");
            const auto site =
                is_a || name.ends_with(".lora_b") ? find_site(name.substr(0, name.size() - 7)) : std::optional<Site>();
            if (!site) return refuse(tensor, "this base has no place for it");
            if (site->layer >= base_.layer_count())
                return refuse(tensor, "this base has layers 0 to " + std::to_string(base_.layer_count() - 1));
            GgufPlan::Pair& pair = pairs[*site];
            pair.layer = site->layer;
            pair.projection = site->projection;
            pair.embedding = site->embedding;
            (is_a ? pair.a : pair.b) = &tensor;
        }
        GgufPlan plan;
        for (auto& [site, pair] : pairs)
            if (auto good = check_pair(pair, alpha->value_or(0.0), permuted, plan); !good) return good.error();
        if (plan.pairs.empty()) return refuse("it holds no tensor: no module of this base is adapted");
        if (auto read = read_invocation(plan); !read) return read.error();
        plan.kind = plan.invocation.empty() ? "lora" : "alora";
        return plan;
    }

    Result<void> check_pair(GgufPlan::Pair& pair, double alpha, bool permuted, GgufPlan& plan) {
        if (pair.a == nullptr) return refuse(*pair.b, "its other half, lora_a, is missing");
        if (pair.b == nullptr) return refuse(*pair.a, "its other half, lora_b, is missing");
        const std::int64_t in = pair.embedding ? base_.vocab_size : base_.in_features(pair.projection);
        const std::int64_t out = pair.embedding ? base_.hidden_size : base_.out_features(pair.projection);
        const auto& b = pair.b->shape;
        if (b.size() != 2 || b[0] != out || b[1] < 1)
            return refuse(*pair.b, "it is " + shape_text(b) + ", this base wants [" + std::to_string(out) + ", r]");
        const std::int64_t rank = b[1];
        const std::vector<std::int64_t> a =
            pair.embedding ? std::vector<std::int64_t>{in, rank} : std::vector<std::int64_t>{rank, in};
        if (pair.a->shape != a)
            return refuse(*pair.a, "it is " + shape_text(pair.a->shape) + ", this base wants " + shape_text(a));
        if (rank > max_rank_)
            return refuse(*pair.b,
                          "its rank is " + std::to_string(rank) + ", the limit is " + std::to_string(max_rank_));
        for (const StoredTensor* tensor : {pair.a, pair.b})
            if (!has_plain_values(*tensor) && tensor->type != StoredType::q8_0)
                return refuse(*tensor, "dtype " + tensor->type_name + " is not supported in an adapter");
        pair.rank = static_cast<int>(rank);
        // As llama.cpp: without an alpha, or with 0, the scale is 1.
        pair.scale = alpha == 0.0 ? 1.0F : static_cast<float>(alpha / static_cast<double>(rank));
        if (!std::isfinite(pair.scale)) return refuse("adapter.lora.alpha makes a scale that is not finite");
        if (permuted && !pair.embedding && pair.projection == Projection::q) pair.unpermute_heads = base_.heads;
        if (permuted && !pair.embedding && pair.projection == Projection::k) pair.unpermute_heads = base_.kv_heads;
        plan.max_rank = std::max(plan.max_rank, pair.rank);
        plan.parsed_bytes += sizeof(LowRankPair) + static_cast<std::uint64_t>(rank * (in + out)) * sizeof(float);
        const std::string target = pair.embedding ? "embed_tokens" : std::string(projection_name(pair.projection));
        if (std::find(plan.targets.begin(), plan.targets.end(), target) == plan.targets.end())
            plan.targets.push_back(target);
        plan.pairs.push_back(pair);
        return {};
    }

    Result<void> read_invocation(GgufPlan& plan) const {
        const auto ids = header_.array("adapter.alora.invocation_tokens", GgufType::u32);
        if (!ids) return ids.error();
        if (*ids == nullptr) return {};
        for (const std::uint64_t id : (*ids)->integers) {
            if (id >= static_cast<std::uint64_t>(base_.vocab_size))
                return refuse("adapter.alora.invocation_tokens names token " + std::to_string(id) + ", this base has " +
                              std::to_string(base_.vocab_size));
            plan.invocation.push_back(static_cast<TokenId>(id));
        }
        return {};
    }

    const GgufHeader& header_;
    const ModelShape& base_;
    int max_rank_;
};

/// llama.cpp's converter lays each head's rows out as pairs (i, i + half); Hugging Face keeps the halves together.
std::vector<float> unpermuted(const std::vector<float>& rows, int heads, std::size_t columns) {
    std::vector<float> out(rows.size());
    const std::size_t dim = rows.size() / columns / static_cast<std::size_t>(heads);
    for (std::size_t head = 0; head < static_cast<std::size_t>(heads); ++head)
        for (std::size_t i = 0; i < dim; ++i) {
            const std::size_t half = i % 2 * (dim / 2) + i / 2;
            std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>((head * dim + i) * columns), columns,
                        out.begin() + static_cast<std::ptrdiff_t>((head * dim + half) * columns));
        }
    return out;
}

}  // namespace

Result<GgufPlan> plan_gguf(const GgufHeader& header, const ModelShape& base, int max_rank) {
    auto plan = Planner(header, base, max_rank).plan();
    // A key of another type is the module's fault here.
    if (!plan && plan.error().code == Errc::invalid_argument)
        return make_error(Errc::invalid_module, plan.error().message);
    return plan;
}

Result<void> read_gguf_module(const ReadOnlyFile& file, const GgufHeader& header, std::uint64_t begin,
                              const GgufPlan& plan, GenerationHash& hash, Module& into) {
    TensorReader reader(file, hash);
    std::map<const StoredTensor*, std::vector<float>> values;
    std::uint64_t at = begin;
    for (const StoredTensor* tensor : in_file_order(header.tensors)) {
        if (auto done = reader.pass(at, tensor->begin); !done) return done;
        std::vector<float>& some = values[tensor];
        some.resize(element_count(*tensor));
        if (auto done = reader.read(*tensor, 0, some); !done) return done;
        at = tensor->begin + tensor->bytes;
    }
    if (auto done = reader.pass(at, file.size()); !done) return done;

    for (const GgufPlan::Pair& planned : plan.pairs) {
        std::vector<float> b = std::move(values[planned.b]);
        if (planned.unpermute_heads > 0)
            b = unpermuted(b, planned.unpermute_heads, static_cast<std::size_t>(planned.rank));
        if (planned.embedding) {
            into.embedding.emplace();
            into.embedding->rank = planned.rank;
            into.embedding->scale = planned.scale;
            into.embedding->a = std::move(values[planned.a]);
            into.embedding->b = std::move(b);
            continue;
        }
        LowRankPair& pair = into.pairs.emplace_back();
        pair.layer = planned.layer;
        pair.projection = planned.projection;
        pair.rank = planned.rank;
        pair.scale = planned.scale;
        pair.a = std::move(values[planned.a]);
        pair.b = std::move(b);
    }
    for (const GgufPlan::Direction& direction : plan.directions) {
        StateLayer& state = into.states.emplace_back();
        state.layer = direction.layer;
        state.kind = StateKind::vector;
        state.scale = 1.0F;
        state.vector = std::move(values[direction.vector]);
    }
    into.pairs.shrink_to_fit();
    into.states.shrink_to_fit();
    into.max_rank = plan.max_rank;
    into.invocation = plan.invocation;
    return {};
}

}  // namespace attune
