#pragma once

#include "engine/text/jinja/text.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace attune::jinja {

/// Python's int, as far as templates need it; beyond 128 bits is an OverflowError.
__extension__ using Integer = __int128;

class Value;
class Context;
struct List;
struct Dict;
struct Range;
struct Sequence;
class Object;

/// What an undefined value says when it is used.
struct Undefined {
    std::string error_type = "UndefinedError";
    std::string hint;   ///< the whole message, if not empty
    std::string owner;  ///< "'dict object'" and the like; empty: a plain name
    std::string name;
    bool is_element = false;  ///< `name` is an index, not an attribute

    std::string message() const;
};

struct None {};

/// A Python value. Containers are shared and never change once made.
class Value {
public:
    using TextPtr = std::shared_ptr<const Text>;
    using ListPtr = std::shared_ptr<const List>;
    using DictPtr = std::shared_ptr<const Dict>;
    using RangePtr = std::shared_ptr<const Range>;
    using SequencePtr = std::shared_ptr<Sequence>;
    using ObjectPtr = std::shared_ptr<Object>;
    using UndefinedPtr = std::shared_ptr<const Undefined>;

    Value() : data_(None{}) {}
    Value(None) : data_(None{}) {}
    Value(bool value) : data_(value) {}
    Value(int value) : data_(static_cast<Integer>(value)) {}
    Value(std::int64_t value) : data_(static_cast<Integer>(value)) {}
    Value(Integer value) : data_(value) {}
    Value(double value) : data_(value) {}
    Value(Text value) : data_(std::make_shared<const Text>(std::move(value))) {}
    Value(std::string value) : Value(Text(std::move(value))) {}
    Value(std::string_view value) : Value(Text(std::string(value))) {}
    Value(const char* value) : Value(Text(value)) {}
    Value(List value);
    Value(Dict value);
    Value(Range value);
    Value(Sequence value);
    Value(Undefined value) : data_(std::make_shared<const Undefined>(std::move(value))) {}
    Value(ListPtr value) : data_(std::move(value)) {}
    Value(ObjectPtr value) : data_(std::move(value)) {}

    bool is_undefined() const { return std::holds_alternative<UndefinedPtr>(data_); }
    bool is_none() const { return std::holds_alternative<None>(data_); }
    bool is_bool() const { return std::holds_alternative<bool>(data_); }
    bool is_int() const { return std::holds_alternative<Integer>(data_); }
    bool is_float() const { return std::holds_alternative<double>(data_); }
    bool is_text() const { return std::holds_alternative<TextPtr>(data_); }
    bool is_list_or_tuple() const { return std::holds_alternative<ListPtr>(data_); }
    bool is_tuple() const;
    bool is_dict() const { return std::holds_alternative<DictPtr>(data_); }
    bool is_range() const { return std::holds_alternative<RangePtr>(data_); }
    bool is_sequence() const { return std::holds_alternative<SequencePtr>(data_); }
    bool is_object() const { return std::holds_alternative<ObjectPtr>(data_); }
    /// bool counts as a number, as in Python.
    bool is_integral() const { return is_bool() || is_int(); }
    bool is_number() const { return is_integral() || is_float(); }

    bool boolean() const { return std::get<bool>(data_); }
    double floating() const { return std::get<double>(data_); }
    const Text& text() const { return *std::get<TextPtr>(data_); }
    const std::string& bytes() const { return text().bytes; }
    const List& list() const { return *std::get<ListPtr>(data_); }
    const ListPtr& list_pointer() const { return std::get<ListPtr>(data_); }
    const Dict& dict() const { return *std::get<DictPtr>(data_); }
    const Range& range() const { return *std::get<RangePtr>(data_); }
    Sequence& sequence() const { return *std::get<SequencePtr>(data_); }
    Object& object() const { return *std::get<ObjectPtr>(data_); }
    const ObjectPtr& object_pointer() const { return std::get<ObjectPtr>(data_); }
    const Undefined& undefined() const { return *std::get<UndefinedPtr>(data_); }
    /// Of an int or bool.
    Integer integer() const { return is_bool() ? static_cast<Integer>(boolean()) : std::get<Integer>(data_); }
    /// Of any number.
    double number() const { return is_float() ? floating() : static_cast<double>(integer()); }

    /// `x is y`.
    bool is_same(const Value& other) const;
    /// type(x).__name__
    std::string type_name() const;
    /// How jinja2 names an object in its messages: "list object", "None".
    std::string described() const;

private:
    std::variant<None, bool, Integer, double, TextPtr, ListPtr, DictPtr, RangePtr, SequencePtr, ObjectPtr, UndefinedPtr>
        data_;
};

struct List {
    std::vector<Value> items;
    bool tuple = false;
    bool from_request = false;
};

/// In insertion order. Keys compare as in Python (1, 1.0 and True are one key).
struct Dict {
    std::vector<std::pair<Value, Value>> entries;
    bool from_request = false;
    std::unordered_map<std::string_view, std::size_t> index;  ///< text keys of large ones, see finish()

    const Value* find(std::string_view key) const;
    const Value* find_key(const Value& key) const;
    /// Replaces the value of a key that is there.
    void set(Value key, Value value);
    /// Makes look-ups in a large one fast. Call when it is complete.
    void finish();
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
    std::vector<Value> items;
    const char* type = "generator";
    bool used_up_by_reading = true;  ///< generators; dict views may be read again
    std::size_t next = 0;
    std::string shown;  ///< repr, empty: Python's address form
};

/// Arguments of a call.
struct Arguments {
    std::vector<Value> positional;
    std::vector<std::pair<std::string, Value>> keyword;
};

/// Everything that is callable or has attributes of its own.
class Object {
public:
    virtual ~Object() = default;
    virtual std::string type_name() const = 0;
    /// Null: no such attribute.
    virtual std::unique_ptr<Value> attribute(std::string_view) { return nullptr; }
    virtual bool is_callable() const { return false; }
    virtual Value call(Context& context, Arguments arguments);
    virtual std::string repr() const { return "<" + type_name() + ">"; }
};

bool is_true(const Value& value);
bool equals(const Value& left, const Value& right);
/// Throws TypeError for kinds that have no order.
bool less(const Value& left, const Value& right, const char* operation = "<");
/// str(value) and repr(value).
Text to_text(const Value& value);
Text to_repr(const Value& value);
std::string repr_of_float(double value);
std::string integer_text(Integer value);
/// Whether any part of the value came out of the request.
bool has_request_text(const Value& value);
/// TypeError for a list or dict used as a key.
void require_hashable(const Value& value);

}  // namespace attune::jinja
