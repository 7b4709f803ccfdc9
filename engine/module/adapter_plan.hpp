#pragma once

#include "attune/result.hpp"
#include "engine/files/safetensors.hpp"
#include "engine/model/model_shape.hpp"
#include "engine/module/module.hpp"
#include "engine/module/peft_config.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace attune {

class GenerationHash;

/// Values of an adapter's tensors, float32, while a module is built from them.
using TensorValues = std::map<const StoredTensor*, std::vector<float>>;

/// A part of a module, checked against file headers; build() makes it once the values are there.
struct PlannedPart {
    /// `base` may be null where needs_base is false. The values may be moved out.
    std::function<Result<void>(TensorValues& values, const BaseValues* base, Module& into)> build;
    std::uint64_t made_bytes = 0;  ///< what build() allocates beside values that it moves
    bool needs_base = false;
};

/// A tensor that is looked at row by row as it is read, as it may be as large as the base's own table.
struct PlannedStream {
    /// `rows`: whole rows from `first` on.
    std::function<Result<void>(std::int64_t first, std::span<float> rows, const BaseValues* base)> take;
    std::int64_t columns = 0;
};

/// What an adapter's config and tensor headers make of a module: every tensor of the file has its use, and everything
/// that the config promises and the base has a place for is there. Points into the header it was made from.
struct AdapterPlan {
    std::string kind;  ///< lora, dora, alora, adalora, miss, vera, loha, lokr, oft, boft, ia3, prefix, prompt, p_tuning
    int max_rank = 0;
    std::vector<std::string> targets;  ///< what it sits on, e.g. q_proj, in table order
    std::uint64_t parsed_bytes = 0;    ///< at most what the built module holds, and what building it needs beside
    std::vector<TokenId> invocation;
    int added_ids = 0;  ///< rows of its tables beyond the base's
    std::vector<PlannedPart> parts;
    std::map<const StoredTensor*, PlannedStream> streams;

    bool needs_base() const;
};

/// Errc::invalid_module naming tensor or key. `base_values` may be null: then what only they can tell is not checked.
Result<AdapterPlan> plan_adapter(const SafetensorsHeader& header, const PeftConfig& config, const ModelShape& base,
                                 int max_rank, const BaseValues* base_values);

/// Reads the file's tensors once, in the order of the file, hashing each byte, and builds `into` from them. Every value
/// must be finite. Errc::unavailable when the plan needs base values and there are none.
Result<void> read_adapter(const ReadOnlyFile& file, const SafetensorsHeader& header, const AdapterPlan& plan,
                          const BaseValues* base_values, GenerationHash& hash, Module& into);

/// Multiplies all that the module does to a row. Errc::invalid_module for a kind that has no scale (virtual tokens).
Result<void> scale_module(Module& module, double scale);

/// Bytes that the module's vectors hold.
std::uint64_t host_bytes(const Module& module);

}  // namespace attune
