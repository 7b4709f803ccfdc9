// A GGUF file as a module of a small base: what is planned has a place in the base, and is read whole.
#include "engine/files/gguf.hpp"
#include "engine/module/gguf_part.hpp"
#include "engine/module/package_files.hpp"
#include "fuzz/fuzz_input.hpp"
#include "fuzz/memory_file.hpp"
#include "fuzz/small_base.hpp"

namespace attune::fuzz {
namespace {

constexpr int kMaxRank = 8;

void check_plan(const GgufPlan& plan, const ModelShape& base) {
    demand(plan.pairs.size() + plan.directions.size() > 0 && plan.max_rank <= kMaxRank && !plan.kind.empty());
    for (const GgufPlan::Pair& pair : plan.pairs) {
        demand(pair.a != nullptr && pair.b != nullptr && pair.rank >= 1 && pair.rank <= plan.max_rank);
        demand(pair.layer >= 0 && pair.layer < base.layer_count());
    }
    for (const GgufPlan::Direction& direction : plan.directions) {
        demand(direction.vector != nullptr && direction.layer >= 0 && direction.layer < base.layer_count());
    }
    for (const TokenId id : plan.invocation) demand(id >= 0 && id < base.vocab_size);
}

void check_values(const Module& module, const ModelShape& base) {
    for (const LowRankPair& pair : module.pairs) {
        const auto rank = static_cast<std::size_t>(pair.rank);
        demand(pair.a.size() == rank * static_cast<std::size_t>(base.in_features(pair.projection)));
        demand(pair.b.size() == rank * static_cast<std::size_t>(base.out_features(pair.projection)));
    }
    for (const StateLayer& state : module.states) {
        demand(state.vector.size() == static_cast<std::size_t>(base.hidden_size));
    }
}

}  // namespace
}  // namespace attune::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace attune;
    static const ModelShape kBase = fuzz::small_base();
    const auto bytes = fuzz::bytes_of(data, size);
    const auto header = parse_gguf_header(bytes, "fuzz.gguf");
    if (!header) return 0;
    const auto plan = plan_gguf(*header, kBase, fuzz::kMaxRank);
    if (!plan) {
        fuzz::demand(plan.error().code == Errc::invalid_module && !plan.error().message.empty());
        return 0;
    }
    fuzz::check_plan(*plan, kBase);
    const fuzz::MemoryFile file(bytes);
    std::uint64_t begin = 0;
    const auto read = read_gguf_header(file.get(), size + 1, [&](auto part) { begin += part.size(); });
    fuzz::demand(static_cast<bool>(read));
    const auto again = plan_gguf(*read, kBase, fuzz::kMaxRank);
    GenerationHash hash;
    Module module;
    if (read_gguf_module(file.get(), *read, begin, *again, hash, module)) fuzz::check_values(module, kBase);
    return 0;
}
