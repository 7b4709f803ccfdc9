#pragma once

#include "attune/ids.hpp"
#include "attune/result.hpp"
#include "engine/model/model_shape.hpp"
#include "engine/module/module_text.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attune {

/// All that a module does to a row is a sum of deltas to what the base computes, each times the module's weight in the
/// request. So any modules add up exactly, in any order (states apart), and weight 0 is the base.

/// y += weight * scale * ((x A^T) B^T) on one linear layer (LoRA, arXiv 2106.09685; everything that can be written so).
struct LowRankPair {
    int layer = 0;  ///< 0 for the head
    Projection projection{};
    int rank = 0;
    float scale = 1.0F;  ///< alpha / r, or alpha / sqrt(r) with rsLoRA; from the true rank
    /// [rank, in]. Empty: (x A^T)[k] is the sum of x[j] over all j = k (mod rank), MiSS's shards (arXiv 2409.15371);
    /// with rank == in that is x itself, and B a dense change of the weight (which no limit on ranks speaks of).
    std::vector<float> a;
    std::vector<float> b;  // [out, rank]
};

/// y += weight * (gain * (x W^T [+ the base's bias]) + add), element by element: DoRA, IA3, trained biases.
struct OutputTerm {
    int layer = 0;  ///< 0 for the head
    Projection projection{};
    std::vector<float> gain;    // [out] or empty: DoRA m / c - 1, IA3 l - 1
    bool gain_on_bias = false;  ///< IA3 scales the base's bias too, DoRA does not
    std::vector<float> add;     // [out] or empty: scale * lora_B.bias, and a trained bias minus the base's
};

/// The base's product reads x * (1 + weight * gain) instead of x: IA3 on feed-forward layers.
struct InputTerm {
    int layer = 0;
    Projection projection{};
    std::vector<float> gain;  // [in]: l - 1
};

/// What a token's row of the input embedding gains.
struct EmbeddingTerm {
    /// + weight * scale * B a_t; rank 0 without.
    int rank = 0;
    float scale = 1.0F;
    std::vector<float> a;  // [vocab, rank], a row per token
    std::vector<float> b;  // [hidden, rank]
    /// + weight * rows[i] for tokens[i]: a replaced row minus the base's. Ascending ids.
    std::vector<TokenId> tokens;
    std::vector<float> rows;  // [tokens, hidden]
    bool whole = false;       ///< the files hold every row: those not among `tokens` are the base's
};

/// Tokens that the base has no rows for: ids from the base's vocab_size on. To the base their rows are zero, so that
/// these are added times the module's weight like everything else, and their logits exist only under this module.
inline constexpr int kMostNewTokens = 1 << 16;
struct NewTokens {
    int count = 0;
    std::vector<float> input;  // [count, hidden], of the embedding
    std::vector<float> head;   // [count, hidden]
};

/// logits[tokens[i]] += weight * (hidden . rows[i]): rows of the head that were replaced, minus the base's.
struct HeadRows {
    std::vector<TokenId> tokens;  // ascending
    std::vector<float> rows;      // [tokens, hidden]
};

enum class NormSite : std::uint8_t { attention, mlp, query, key, last };

/// A replaced norm weight: the normed row gains weight * delta * (x / rms(x)).
struct NormTerm {
    int layer = 0;  ///< 0 for the last norm
    NormSite site{};
    std::vector<float> delta;  // [hidden], or [head_dim] for query and key: the trained weight minus the base's
};

/// Keys and values that stand before the sequence (prefix tuning, arXiv 2101.00190): used as stored, without rotation
/// or norm. The first real token has position `tokens`.
struct PrefixSegment {
    int tokens = 0;
    std::vector<float> keys;    // [layers, tokens, kv_heads * head_dim]
    std::vector<float> values;  // likewise
};

/// Input embeddings that stand before the sequence (prompt tuning, P-tuning); the model reads them like tokens.
struct SoftPrompt {
    int tokens = 0;
    std::vector<float> rows;  // [tokens, hidden]
};

enum class StateKind : std::uint8_t { vector, linear, bottleneck };
enum class Activation : std::uint8_t { identity, tanh, relu, silu, gelu };  ///< gelu: the erf form

/// A State module on the output h of one decoder layer, computed in float32 (DESIGN, module package):
/// h + s v, h + s U(D h), h + s (U act(D h + c) + d).
struct StateLayer {
    int layer = 0;
    StateKind kind{};
    Activation activation = Activation::identity;
    float scale = 0.1F;
    int width = 0;                 ///< rows of D; 0 for a vector
    std::vector<float> vector;     // [hidden]
    std::vector<float> down;       // D [width, hidden]
    std::vector<float> down_bias;  // c [width] or empty
    std::vector<float> up;         // U [hidden, width]; the transposed D where the file has none
    std::vector<float> up_bias;    // d [hidden] or empty
};

/// A module that has to be on before this one.
struct Requirement {
    std::string name;
    std::string pin;  ///< a version or a generation; empty: any
    friend bool operator==(const Requirement&, const Requirement&) = default;
};

struct SwapFacts;

/// A module's content: checked whole, then never changed. Torch-free, so that loaders need no device.
struct Module {
    ModuleId id;       ///< name it was loaded under and generation
    std::string kind;  ///< lora, dora, alora, miss, ia3, prefix, prompt, state, ...; "package" for two parts
    std::vector<LowRankPair> pairs;   ///< ascending (layer, projection)
    std::vector<OutputTerm> outputs;  ///< ascending (layer, projection)
    std::vector<InputTerm> inputs;    ///< ascending (layer, projection)
    std::optional<EmbeddingTerm> embedding;
    std::optional<HeadRows> head_rows;
    std::optional<NewTokens> new_tokens;
    std::vector<NormTerm> norms;
    std::optional<PrefixSegment> prefix;
    std::optional<SoftPrompt> prompt;
    std::vector<StateLayer> states;  ///< ascending layer
    int order = 0;                   ///< of its states among those of a request: lower ones first, then by name
    std::vector<Requirement> needs;  ///< put on first; their states come first whatever the order
    std::string version;             ///< the manifest's; empty: none
    /// aLoRA: everything above acts from the last occurrence of these ids in the prompt on (the first of them
    /// included); nowhere when they do not occur. Empty: everywhere.
    std::vector<TokenId> invocation;
    std::shared_ptr<const ModuleText> text;  ///< null: texts are written and read as for the base
    std::shared_ptr<const SwapFacts> swap;   ///< what modules.swap = strict compares; null unless the limits ask for it
    int max_rank = 0;
    bool unverified = false;
    std::string base_match;        ///< shape, checkpoint, unverified
    std::uint64_t host_bytes = 0;  ///< what the vectors above hold

    /// How many ids it knows beyond the base's.
    int added_ids() const { return new_tokens ? new_tokens->count : 0; }
    /// Positions that stand before the first real token.
    int virtual_tokens() const { return prefix ? prefix->tokens : prompt ? prompt->tokens : 0; }
};

using ModulePtr = std::shared_ptr<const Module>;

/// The base's own values as they are served (rounded to the resident dtype), read again from their source files: never
/// a merged tensor. For loaders, which build DoRA gains, dense changes and replaced rows from them. Any thread.
class BaseValues {
public:
    virtual ~BaseValues() = default;
    /// Rows [first, first + count) of a tensor under its Hugging Face name ("model.layers.0.self_attn.q_proj.weight");
    /// a vector is one row. `into`: [count, columns]. Errc::not_found when the base has no such tensor.
    virtual Result<void> read_rows(std::string_view tensor, std::int64_t first, std::int64_t count,
                                   std::span<float> into) const = 0;
    virtual bool has(std::string_view tensor) const = 0;
    /// Rounds values to the dtype that matrices are resident in: two that are equal then are one to the base.
    virtual void round_as_served(std::span<float> values) const = 0;
};

}  // namespace attune
