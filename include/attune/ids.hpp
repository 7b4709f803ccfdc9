#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace attune {

/// One client request, unique for the life of the process; made by Gateway::next_id().
enum class RequestId : std::uint64_t {};

/// A vocabulary entry. Negative values never occur in valid data.
using TokenId = std::int32_t;

/// A fixed-size run of KV positions (engine/kv/block_pool.hpp).
enum class BlockId : std::int32_t {};

/// A resident module: its row in the table of (layer, projection) -> fragment (engine/module/module_slots.hpp).
enum class SlotId : std::int32_t {};

template <class Id>
constexpr auto value_of(Id id) noexcept {
    return static_cast<std::underlying_type_t<Id>>(id);
}

/// A module's name together with the content it stood for when it was leased.
/// `generation` is 64 lower-case hex digits (SHA-256, see DESIGN "generation"), or empty while the content is unknown.
struct ModuleId {
    std::string name;
    std::string generation;
    friend auto operator<=>(const ModuleId&, const ModuleId&) = default;
};

}  // namespace attune
