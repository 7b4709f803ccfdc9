#pragma once

#include "engine/text/jinja/text.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace attune::jinja {

/// Python's int, as far as templates need it; beyond 128 bits is an OverflowError.
__extension__ using Integer = __int128;

class Context;
class Dict;
class Object;
struct List;
struct Member;
struct Range;
struct Sequence;
struct Undefined;

/// A Python value. Plain data: a number or text is in it, a container is pointed to. Containers live in an arena, are
/// shared and never change once made.
class Value {
public:
    Value() : kind_(Kind::none), bits_{0, 0} {}
    Value(bool value) : kind_(Kind::boolean), bits_{value ? 1U : 0U, 0} {}
    Value(int value) : Value(static_cast<Integer>(value)) {}
    Value(std::int64_t value) : Value(static_cast<Integer>(value)) {}
    Value(Integer value)
        : kind_(Kind::integer), bits_{static_cast<std::uint64_t>(value), static_cast<std::int64_t>(value >> 64)} {}
    Value(double value) : kind_(Kind::floating), floating_(value) {}
    Value(const Text& value) : kind_(Kind::text), text_(value) {}
    /// The bytes must outlive the value: a literal, or in an arena.
    explicit Value(std::string_view value) : Value(Text(value)) {}
    explicit Value(const std::string&) = delete;
    Value(const char* literal) : Value(Text(literal)) {}
    Value(const List* value) : kind_(Kind::list), list_(value) {}
    Value(const Dict* value) : kind_(Kind::dict), dict_(value) {}
    Value(const Range* value) : kind_(Kind::range), range_(value) {}
    Value(Sequence* value) : kind_(Kind::sequence), sequence_(value) {}
    Value(Object* value) : kind_(Kind::object), object_(value) {}
    Value(const Undefined* value) : kind_(Kind::undefined), undefined_(value) {}
    Value(const void*) = delete;  // else pointers would turn into bool

    /// What a slot holds before anything is assigned: no Python value at all.
    static Value unset() {
        Value value;
        value.kind_ = Kind::unset;
        return value;
    }

    bool is_unset() const { return kind_ == Kind::unset; }
    bool is_undefined() const { return kind_ == Kind::undefined; }
    bool is_none() const { return kind_ == Kind::none; }
    bool is_bool() const { return kind_ == Kind::boolean; }
    bool is_int() const { return kind_ == Kind::integer; }
    bool is_float() const { return kind_ == Kind::floating; }
    bool is_text() const { return kind_ == Kind::text; }
    bool is_list_or_tuple() const { return kind_ == Kind::list; }
    bool is_tuple() const;
    bool is_dict() const { return kind_ == Kind::dict; }
    bool is_range() const { return kind_ == Kind::range; }
    bool is_sequence() const { return kind_ == Kind::sequence; }
    bool is_object() const { return kind_ == Kind::object; }
    /// bool counts as a number, as in Python.
    bool is_integral() const { return is_bool() || is_int(); }
    bool is_number() const { return is_integral() || is_float(); }

    // Each only for its own kind.
    bool boolean() const { return bits_.low != 0; }
    double floating() const { return floating_; }
    const Text& text() const { return text_; }
    std::string_view bytes() const { return text_.bytes(); }
    const List& list() const { return *list_; }
    const Dict& dict() const { return *dict_; }
    const Range& range() const { return *range_; }
    Sequence& sequence() const { return *sequence_; }
    Object& object() const { return *object_; }
    const Undefined& undefined() const { return *undefined_; }
    /// Of an int or bool.
    Integer integer() const { return static_cast<Integer>(bits_.high) << 64 | bits_.low; }
    /// Of any number.
    double number() const { return is_float() ? floating_ : static_cast<double>(integer()); }

    /// `x is y`.
    bool is_same(const Value& other) const;
    /// type(x).__name__
    std::string type_name() const { return std::string(type()); }
    std::string_view type() const;
    /// How jinja2 names an object in its messages: "list object", "None".
    std::string described() const;

private:
    enum class Kind : std::uint8_t {
        unset,
        none,
        boolean,
        integer,
        floating,
        text,
        list,
        dict,
        range,
        sequence,
        object,
        undefined,
    };
    struct Bits {
        std::uint64_t low;
        std::int64_t high;
    };

    Kind kind_;
    union {
        Bits bits_;
        double floating_;
        Text text_;
        const List* list_;
        const Dict* dict_;
        const Range* range_;
        Sequence* sequence_;
        Object* object_;
        const Undefined* undefined_;
    };
};

using Values = ArenaVector<Value>;

struct List {
    std::span<const Value> items;
    bool tuple = false;
    bool from_request = false;
};
Value make_list(const Values& items, bool from_request = false);
Value make_tuple(const Values& items);

/// In insertion order. Keys compare as in Python (1, 1.0 and True are one key). Changes only while it is made, or as a
/// namespace's attributes.
class Dict {
public:
    struct Entry {
        Value key;
        Value value;
    };

    explicit Dict(Arena& arena) : entries_(arena), index_(arena) {}
    Dict(Arena& arena, const Dict& from);

    std::span<const Entry> entries() const { return entries_.view(); }
    const Value* find(std::string_view key) const {
        if (!index_.empty()) return find_in_index(key);
        for (const Entry& entry : entries_) {
            if (entry.key.is_text() && same_bytes(entry.key.bytes(), key)) return &entry.value;
        }
        return nullptr;
    }
    const Value* find_key(const Value& key) const;
    /// Adds a key or replaces its value.
    void set(const Value& key, const Value& value);
    /// Adds a key that is not there yet.
    void add(const Value& key, const Value& value) {
        entries_.push_back({key, value});
        if (entries_.size() >= kLarge) index_last();
    }
    void reserve(std::size_t count) { entries_.reserve(count); }
    /// `change(key, value)` may give each key another value.
    template <class Change>
    void for_each(Change&& change) {
        for (Entry& entry : entries_) change(entry.key, entry.value);
    }

    bool from_request = false;

private:
    /// From here on there is an index.
    static constexpr std::size_t kLarge = 12;
    const Value* find_in_index(std::string_view key) const;
    void index_last();
    void put_in_index(std::size_t place);

    ArenaVector<Entry> entries_;
    ArenaVector<std::uint32_t> index_;  ///< hash table over a large one's text keys: 1 + place, 0 where free
};

struct Range {
    std::int64_t start = 0;
    std::int64_t stop = 0;
    std::int64_t step = 1;
    std::int64_t length() const;
    friend bool operator==(const Range&, const Range&) = default;
};

/// A generator or a dict view: iterable, but no sequence.
struct Sequence {
    std::span<const Value> items;
    std::string_view type = "generator";
    bool used_up_by_reading = true;  ///< generators; dict views may be read again
};

/// What an undefined value says when it is used.
struct Undefined {
    std::string_view error_type = "UndefinedError";
    std::string_view hint;        ///< the whole message, if not empty
    std::string_view owner_type;  ///< "dict" and the like; empty: a plain name
    std::string_view name;
    bool is_element = false;  ///< `name` is an index, not an attribute

    std::string message() const;
};
Value undefined_because(Arena& arena, std::string_view hint);

struct Keyword {
    std::string_view name;
    Value value;
};

/// Arguments of a call.
struct Arguments {
    std::span<const Value> positional;
    std::span<const Keyword> keyword;
};

/// Everything that is callable or has attributes of its own. Lives in an arena, so it is never destroyed.
class Object {
public:
    virtual std::string_view type_name() const = 0;
    /// Empty: no such attribute. `known` is what find_member() says of the name.
    virtual std::optional<Value> attribute(Arena&, std::string_view /*name*/, const Member& /*known*/) {
        return std::nullopt;
    }
    virtual bool is_callable() const { return false; }
    virtual Value call(Context& context, const Arguments& arguments);
    virtual std::string repr() const { return "<" + std::string(type_name()) + ">"; }

protected:
    ~Object() = default;
};

bool is_true(const Value& value);
bool equals(const Value& left, const Value& right);
/// Throws TypeError for kinds that have no order.
bool less(const Value& left, const Value& right, const char* operation = "<");
/// str(value) and repr(value).
Text to_text(Arena& arena, const Value& value);
Text to_repr(Arena& arena, const Value& value);
/// Appends str(value).
void append_text(TextBuilder& out, const Value& value);
std::string repr_of(const Value& value);
std::string repr_of_float(double value);
std::string integer_text(Integer value);
/// Whether any part of the value came out of the request.
bool has_request_text(const Value& value);
/// TypeError for a list or dict used as a key.
void require_hashable(const Value& value);

}  // namespace attune::jinja
