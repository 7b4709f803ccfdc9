// Slots of one shape for every rank: a later swap of modules then changes numbers only (ADAPTERS, hotswap).

#include "engine/files/quote.hpp"
#include "engine/module/module_slots_impl.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace attune {
namespace {

bool can_pad(const LowRankPair& pair) { return !pair.a.empty(); }

/// Zero rows of A and zero columns of B add nothing.
void pad(LowRankPair& pair, int rank) {
    const auto before = static_cast<std::size_t>(pair.rank);
    const auto after = static_cast<std::size_t>(rank);
    const std::size_t outputs = pair.b.size() / before;
    pair.a.resize(pair.a.size() / before * after);
    std::vector<float> b(outputs * after);  // [out, rank]
    for (std::size_t row = 0; row < outputs; ++row)
        std::copy_n(pair.b.begin() + static_cast<std::ptrdiff_t>(row * before), before,
                    b.begin() + static_cast<std::ptrdiff_t>(row * after));
    pair.b = std::move(b);
    pair.rank = rank;
}

/// The largest rank among pairs that can be padded; 0 without any.
int largest_rank(const Module& module) {
    int rank = 0;
    for (const LowRankPair& pair : module.pairs)
        if (can_pad(pair)) rank = std::max(rank, pair.rank);
    return rank;
}

Error refuse(std::string text) { return make_error(Errc::invalid_argument, std::move(text), "target_rank"); }

}  // namespace

bool ModuleSlots::Impl::must_pad(const Module& module) const {
    return std::any_of(module.pairs.begin(), module.pairs.end(),
                       [this](const LowRankPair& pair) { return can_pad(pair) && pair.rank < prepared_rank; });
}

ModulePtr ModuleSlots::Impl::stored_form(const ModulePtr& module) const {
    if (!must_pad(*module)) return module;
    auto padded = std::make_shared<Module>();
    *padded = *module;
    for (LowRankPair& pair : padded->pairs)
        if (can_pad(pair) && pair.rank < prepared_rank) pad(pair, prepared_rank);
    return padded;
}

std::uint64_t ModuleSlots::bytes_for(const Module& module) const {
    const Impl& impl = *impl_;
    std::uint64_t bytes = bytes_needed(module, impl.options.dtype);
    for (const LowRankPair& pair : module.pairs) {
        if (!can_pad(pair) || pair.rank >= impl.prepared_rank) continue;
        Module one;
        one.pairs.push_back(pair);
        bytes -= bytes_needed(one, impl.options.dtype);
        pad(one.pairs.front(), impl.prepared_rank);
        bytes += bytes_needed(one, impl.options.dtype);
    }
    return bytes;
}

void ModuleSlots::mark_captured() { impl_->captured = true; }

Result<std::string> ModuleSlots::prepare_slots(int target_rank, std::string_view when_captured) {
    Impl& impl = *impl_;
    const bool warns = when_captured == "warn";
    if (!warns && when_captured != "error" && when_captured != "ignore")
        return make_error(Errc::invalid_argument,
                          "check_compiles should be one of 'error', 'warn' or 'ignore', got " +
                              in_quotes(std::string(when_captured)) + " instead",
                          "when_captured");
    std::string warning;
    if (impl.captured) {
        const std::string sentence = "Call prepare_model_for_compiled_hotswap *before* compiling the model";
        if (when_captured == "error") return make_error(Errc::invalid_argument, sentence, "when_captured");
        if (warns) warning = sentence;
    }
    int largest = 0;
    for (const Impl::Slot& slot : impl.slots)
        if (slot.module) largest = std::max(largest, largest_rank(*slot.module));
    if (largest == 0) return refuse("No adapter layers found on the model: install a module with low-rank pairs first");
    largest = std::max(largest, impl.prepared_rank);
    if (target_rank < largest)
        return refuse("Trying to pad the adapter to the target rank " + std::to_string(target_rank) +
                      ", but the original rank is larger (" + std::to_string(largest) + ")");
    if (target_rank > impl.options.max_rank)
        return refuse("the target rank " + std::to_string(target_rank) + " is above the largest rank of a module, " +
                      std::to_string(impl.options.max_rank));

    // New places first: when they run out, the old ones still hold everything.
    const int before = std::exchange(impl.prepared_rank, target_rank);
    std::vector<std::pair<Impl::Slot*, Impl::Slot>> moved;
    for (Impl::Slot& slot : impl.slots) {
        if (!slot.module || !impl.must_pad(*slot.stored)) continue;
        Impl::Slot padded{slot.module, nullptr, impl.stored_form(slot.module)};
        padded.content = std::make_unique<SlotContent>(*padded.stored);
        if (!impl.take(*padded.content)) {
            for (const auto& [unused, taken] : moved) impl.give(*taken.content);
            impl.prepared_rank = before;
            return make_error(Errc::no_room, "the slots have no room to pad module " + in_quotes(slot.module->id.name) +
                                                 " to rank " + std::to_string(target_rank));
        }
        moved.emplace_back(&slot, std::move(padded));
    }
    for (auto& [slot, padded] : moved) {
        impl.fill_some(padded.content->arrays());
        impl.give(*slot->content);
        *slot = std::move(padded);
    }
    impl.changed();
    return warning;
}

}  // namespace attune
