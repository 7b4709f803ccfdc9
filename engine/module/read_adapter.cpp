// From a planned adapter to a module: values in, parts built, everything scaled and counted.

#include "engine/module/adapter_plan.hpp"
#include "engine/module/tensor_reader.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace attune {
namespace {

constexpr std::size_t kStreamFloats = 64u << 10;  // values of a streamed table that are in memory at a time

Result<void> stream_rows(TensorReader& reader, const StoredTensor& tensor, const PlannedStream& stream,
                         const BaseValues* base) {
    const auto columns = static_cast<std::size_t>(stream.columns);
    const std::size_t rows = element_count(tensor) / columns;
    const std::size_t chunk = std::max<std::size_t>(kStreamFloats / columns, 1);
    std::vector<float> values(std::min(chunk, rows) * columns);
    for (std::size_t first = 0; first < rows; first += chunk) {
        const std::span<float> some(values.data(), std::min(chunk, rows - first) * columns);
        if (auto read = reader.read(tensor, first * columns, some); !read) return read;
        if (auto taken = stream.take(static_cast<std::int64_t>(first), some, base); !taken) return taken;
    }
    return {};
}

template <class Term>
void sort_by_site(std::vector<Term>& terms) {
    std::sort(terms.begin(), terms.end(), [](const Term& x, const Term& y) {
        return std::pair(x.layer, x.projection) < std::pair(y.layer, y.projection);
    });
}

void scale_all(std::vector<float>& values, float scale) {
    for (float& value : values) value *= scale;
}

}  // namespace

Result<void> read_adapter(const ReadOnlyFile& file, const SafetensorsHeader& header, const AdapterPlan& plan,
                          const BaseValues* base_values, GenerationHash& hash, Module& into) {
    if (plan.needs_base() && base_values == nullptr)
        return make_error(Errc::unavailable, "an adapter of kind " + plan.kind + " is built from the base's weights");
    TensorReader reader(file, hash);
    TensorValues values;
    for (const StoredTensor* tensor : in_file_order(header.tensors)) {
        if (const auto stream = plan.streams.find(tensor); stream != plan.streams.end()) {
            if (auto done = stream_rows(reader, *tensor, stream->second, base_values); !done) return done;
            continue;
        }
        std::vector<float>& some = values[tensor];
        some.resize(element_count(*tensor));
        if (auto done = reader.read(*tensor, 0, some); !done) return done;
    }
    into.pairs.reserve(plan.parts.size());
    for (const PlannedPart& part : plan.parts)
        if (auto built = part.build(values, base_values, into); !built) return built;
    sort_by_site(into.pairs);
    sort_by_site(into.outputs);
    sort_by_site(into.inputs);
    into.pairs.shrink_to_fit();
    into.outputs.shrink_to_fit();
    into.inputs.shrink_to_fit();
    into.norms.shrink_to_fit();
    into.max_rank = plan.max_rank;
    into.invocation = plan.invocation;
    return {};
}

Result<void> scale_module(Module& module, double scale) {
    if (scale == 1.0) return {};
    if (module.virtual_tokens() > 0)
        return make_error(Errc::invalid_module,
                          "adapter.scale is " + std::to_string(scale) + ": virtual tokens have no scale, it must be 1");
    const auto factor = static_cast<float>(scale);
    for (LowRankPair& pair : module.pairs) {
        pair.scale = static_cast<float>(static_cast<double>(pair.scale) * scale);
        if (!std::isfinite(pair.scale))
            return make_error(Errc::invalid_module, "adapter.scale makes a scale that is not finite");
    }
    for (OutputTerm& term : module.outputs) {
        scale_all(term.gain, factor);
        scale_all(term.add, factor);
    }
    for (InputTerm& term : module.inputs) scale_all(term.gain, factor);
    for (StateLayer& state : module.states) state.scale *= factor;
    for (NormTerm& term : module.norms) scale_all(term.delta, factor);
    if (module.embedding) {
        module.embedding->scale *= factor;
        scale_all(module.embedding->rows, factor);
    }
    if (module.head_rows) scale_all(module.head_rows->rows, factor);
    if (module.new_tokens) {
        scale_all(module.new_tokens->input, factor);
        scale_all(module.new_tokens->head, factor);
    }
    return {};
}

std::uint64_t host_bytes(const Module& module) {
    std::uint64_t floats = 0;
    const auto add = [&](const std::vector<float>& values) { floats += values.capacity(); };
    std::uint64_t bytes = module.pairs.capacity() * sizeof(LowRankPair) +
                          module.outputs.capacity() * sizeof(OutputTerm) +
                          module.inputs.capacity() * sizeof(InputTerm) + module.norms.capacity() * sizeof(NormTerm) +
                          module.states.capacity() * sizeof(StateLayer);
    for (const LowRankPair& pair : module.pairs) add(pair.a), add(pair.b);
    for (const OutputTerm& term : module.outputs) add(term.gain), add(term.add);
    for (const InputTerm& term : module.inputs) add(term.gain);
    for (const NormTerm& term : module.norms) add(term.delta);
    if (module.embedding) {
        add(module.embedding->a), add(module.embedding->b), add(module.embedding->rows);
        bytes += module.embedding->tokens.capacity() * sizeof(TokenId);
    }
    if (module.head_rows) {
        add(module.head_rows->rows);
        bytes += module.head_rows->tokens.capacity() * sizeof(TokenId);
    }
    if (module.new_tokens) add(module.new_tokens->input), add(module.new_tokens->head);
    if (module.prefix) add(module.prefix->keys), add(module.prefix->values);
    if (module.prompt) add(module.prompt->rows);
    for (const StateLayer& state : module.states)
        add(state.vector), add(state.down), add(state.down_bias), add(state.up), add(state.up_bias);
    return bytes + floats * sizeof(float);
}

}  // namespace attune
