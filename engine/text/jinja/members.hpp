#pragma once

#include "engine/text/jinja/value.hpp"

#include <cstdint>
#include <string_view>

namespace attune::jinja {

using Method = Value (*)(Context& context, const Value& self, const Arguments& arguments);

/// Fields of `loop`.
enum class LoopField : std::uint8_t {
    none,
    index,
    index0,
    revindex,
    revindex0,
    first,
    last,
    length,
    depth,
    depth0,
    previtem,
    nextitem,
    cycle,
    changed,
};

/// What a name means behind a dot, whatever it is that stands before it: found once, by the parser.
struct Member {
    Method of_text = nullptr;
    Method of_list = nullptr;
    Method of_tuple = nullptr;  ///< of ranges too
    Method of_dict = nullptr;
    Method of_float = nullptr;
    bool is_internal = false;  ///< an attribute that every Python object has and no template may touch
    bool changes_list = false;
    bool changes_dict = false;
    LoopField loop = LoopField::none;

    /// The method of a built-in type's value; null when it has none of this name that a template may call.
    Method of(const Value& owner) const {
        if (owner.is_text()) return of_text;
        if (owner.is_dict()) return of_dict;
        if (owner.is_list_or_tuple()) return owner.is_tuple() ? of_tuple : of_list;
        if (owner.is_range()) return of_tuple;
        return owner.is_float() ? of_float : nullptr;
    }
};

/// Lives for ever. A name that means nothing special has a Member without anything.
const Member& find_member(std::string_view name);

}  // namespace attune::jinja
