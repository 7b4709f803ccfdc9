#include "engine/text/jinja/value.hpp"

#include "engine/text/jinja/error.hpp"
#include "engine/text/unicode.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace attune::jinja {
namespace {

constexpr int kMaxDepth = 200;
/// From here on a dict gets a hash index.
constexpr std::size_t kLargeDict = 12;

[[noreturn]] void too_deep() { throw Failure("RecursionError", "a value is nested too deeply"); }

bool is_printable(char32_t c) {
    if (c < 0x7F) return c >= 0x20;
    switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
        case UTF8PROC_CATEGORY_CC:
        case UTF8PROC_CATEGORY_CF:
        case UTF8PROC_CATEGORY_CS:
        case UTF8PROC_CATEGORY_CO:
        case UTF8PROC_CATEGORY_CN:
        case UTF8PROC_CATEGORY_ZL:
        case UTF8PROC_CATEGORY_ZP:
        case UTF8PROC_CATEGORY_ZS:
            return false;
        default:
            return true;
    }
}

void append_escaped(std::string& out, char32_t c) {
    std::array<char, 16> text{};
    const char* form = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
    std::snprintf(text.data(), text.size(), form, static_cast<unsigned>(c));
    out += text.data();
}

std::string repr_of_text(std::string_view text) {
    const bool has_single = text.find('\'') != std::string_view::npos;
    const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
    std::string out(1, quote);
    for (std::size_t at = 0; at < text.size();) {
        const CodePoint point = code_point_at(text, at);
        const char32_t c = point.value;
        if (c == static_cast<char32_t>(quote) || c == '\\') {
            out += '\\';
            out += static_cast<char>(c);
        } else if (c == '\n') {
            out += "\\n";
        } else if (c == '\r') {
            out += "\\r";
        } else if (c == '\t') {
            out += "\\t";
        } else if (is_printable(c)) {
            out.append(text.substr(at, point.bytes));
        } else {
            append_escaped(out, c);
        }
        at += point.bytes;
    }
    return out + quote;
}

void append_repr(std::string& out, const Value& value, int depth);

void append_items(std::string& out, const std::vector<Value>& items, int depth) {
    for (std::size_t i = 0; i < items.size(); ++i) {
        if (i > 0) out += ", ";
        append_repr(out, items[i], depth + 1);
    }
}

void append_repr(std::string& out, const Value& value, int depth) {
    if (depth > kMaxDepth) too_deep();
    if (value.is_text()) {
        out += repr_of_text(value.bytes());
    } else if (value.is_list_or_tuple()) {
        const List& list = value.list();
        out += list.tuple ? '(' : '[';
        append_items(out, list.items, depth);
        if (list.tuple && list.items.size() == 1) out += ',';
        out += list.tuple ? ')' : ']';
    } else if (value.is_dict()) {
        out += '{';
        bool first = true;
        for (const auto& [key, item] : value.dict().entries) {
            if (!first) out += ", ";
            first = false;
            append_repr(out, key, depth + 1);
            out += ": ";
            append_repr(out, item, depth + 1);
        }
        out += '}';
    } else if (value.is_undefined()) {
        out += "Undefined";
    } else if (value.is_sequence()) {
        const Sequence& sequence = value.sequence();
        if (sequence.used_up_by_reading) {
            out += std::string("<") + sequence.type + " object>";
        } else {
            out += std::string(sequence.type) + "([";
            append_items(out, sequence.items, depth);
            out += "])";
        }
    } else {
        out += to_text(value).bytes;
    }
}

bool has_request_text(const Value& value, int depth) {
    if (depth > kMaxDepth) too_deep();
    if (value.is_text()) return value.text().has_literal();
    if (value.is_list_or_tuple()) {
        const List& list = value.list();
        return list.from_request || std::any_of(list.items.begin(), list.items.end(),
                                                [&](const Value& item) { return has_request_text(item, depth + 1); });
    }
    if (value.is_dict()) {
        const Dict& dict = value.dict();
        return dict.from_request || std::any_of(dict.entries.begin(), dict.entries.end(), [&](const auto& entry) {
                   return has_request_text(entry.first, depth + 1) || has_request_text(entry.second, depth + 1);
               });
    }
    if (value.is_sequence()) {
        const auto& items = value.sequence().items;
        return std::any_of(items.begin(), items.end(),
                           [&](const Value& item) { return has_request_text(item, depth + 1); });
    }
    return false;
}

bool equals(const Value& left, const Value& right, int depth) {
    if (depth > kMaxDepth) too_deep();
    if (left.is_number() && right.is_number()) {
        if (left.is_float() || right.is_float()) return left.number() == right.number();
        return left.integer() == right.integer();
    }
    if (left.is_text() && right.is_text()) return left.bytes() == right.bytes();
    if (left.is_none() || right.is_none()) return left.is_none() && right.is_none();
    if (left.is_undefined() || right.is_undefined()) return left.is_undefined() && right.is_undefined();
    if (left.is_list_or_tuple() && right.is_list_or_tuple()) {
        const List& a = left.list();
        const List& b = right.list();
        return a.tuple == b.tuple && a.items.size() == b.items.size() &&
               std::equal(a.items.begin(), a.items.end(), b.items.begin(),
                          [&](const Value& x, const Value& y) { return equals(x, y, depth + 1); });
    }
    if (left.is_dict() && right.is_dict()) {
        const Dict& a = left.dict();
        const Dict& b = right.dict();
        return a.entries.size() == b.entries.size() &&
               std::all_of(a.entries.begin(), a.entries.end(), [&](const auto& entry) {
                   const Value* other = b.find_key(entry.first);
                   return other != nullptr && equals(entry.second, *other, depth + 1);
               });
    }
    if (left.is_range() && right.is_range()) return left.range() == right.range();
    return left.is_same(right);
}

}  // namespace

std::string Undefined::message() const {
    if (!hint.empty()) return hint;
    if (owner.empty()) return repr_of_text(name) + " is undefined";
    if (is_element) return owner + " has no element " + name;
    return repr_of_text(owner) + " has no attribute " + repr_of_text(name);
}

Value::Value(List value) : data_(std::make_shared<const List>(std::move(value))) {}
Value::Value(Dict value) {
    value.finish();
    data_ = std::make_shared<const Dict>(std::move(value));
}
Value::Value(Range value) : data_(std::make_shared<const Range>(value)) {}
Value::Value(Sequence value) : data_(std::make_shared<Sequence>(std::move(value))) {}

bool Value::is_tuple() const { return is_list_or_tuple() && list().tuple; }

bool Value::is_same(const Value& other) const {
    if (data_.index() != other.data_.index()) return false;
    if (is_none()) return true;
    if (is_bool()) return boolean() == other.boolean();
    if (is_int()) return integer() == other.integer();
    if (is_float()) return floating() == other.floating();
    return std::visit(
        [&](const auto& mine) {
            using Held = std::decay_t<decltype(mine)>;
            if constexpr (requires { mine.get(); }) {
                return mine == std::get<Held>(other.data_);
            } else {
                return false;
            }
        },
        data_);
}

std::string Value::type_name() const {
    if (is_undefined()) return "Undefined";
    if (is_none()) return "NoneType";
    if (is_bool()) return "bool";
    if (is_int()) return "int";
    if (is_float()) return "float";
    if (is_text()) return "str";
    if (is_list_or_tuple()) return list().tuple ? "tuple" : "list";
    if (is_dict()) return "dict";
    if (is_range()) return "range";
    if (is_sequence()) return sequence().type;
    return object().type_name();
}

std::string Value::described() const { return is_none() ? "None" : type_name() + " object"; }

const Value* Dict::find(std::string_view key) const {
    if (!index.empty()) {
        const auto found = index.find(key);
        return found == index.end() ? nullptr : &entries[found->second].second;
    }
    for (const auto& [name, value] : entries) {
        if (name.is_text() && name.bytes() == key) return &value;
    }
    return nullptr;
}

const Value* Dict::find_key(const Value& key) const {
    if (key.is_text()) return find(key.bytes());
    for (const auto& [name, value] : entries) {
        if (!name.is_text() && equals(name, key)) return &value;
    }
    return nullptr;
}

void Dict::set(Value key, Value value) {
    if (const Value* old = find_key(key)) {
        *const_cast<Value*>(old) = std::move(value);  // ours: find_key() is const only for readers
        return;
    }
    entries.emplace_back(std::move(key), std::move(value));
    // Keeps building a large one from being quadratic.
    if (entries.size() >= kLargeDict) finish();
}

void Dict::finish() {
    if (entries.size() < kLargeDict) return;
    const bool has_text_keys = !index.empty();
    for (std::size_t i = has_text_keys ? entries.size() - 1 : 0; i < entries.size(); ++i) {
        if (entries[i].first.is_text()) index.try_emplace(entries[i].first.bytes(), i);
    }
}

std::int64_t Range::length() const {
    if (step > 0) return start < stop ? (stop - start + step - 1) / step : 0;
    return start > stop ? (start - stop - step - 1) / -step : 0;
}

Value Object::call(Context&, Arguments) { throw Failure("TypeError", "'" + type_name() + "' object is not callable"); }

bool is_true(const Value& value) {
    if (value.is_bool()) return value.boolean();
    if (value.is_text()) return !value.bytes().empty();
    if (value.is_none() || value.is_undefined()) return false;
    if (value.is_int()) return value.integer() != 0;
    if (value.is_float()) return value.floating() != 0;
    if (value.is_list_or_tuple()) return !value.list().items.empty();
    if (value.is_dict()) return !value.dict().entries.empty();
    if (value.is_range()) return value.range().length() > 0;
    if (value.is_sequence()) return value.sequence().used_up_by_reading || !value.sequence().items.empty();
    return true;
}

bool equals(const Value& left, const Value& right) { return equals(left, right, 0); }

bool less(const Value& left, const Value& right, const char* operation) {
    if (left.is_undefined()) throw Failure(left.undefined().error_type, left.undefined().message());
    if (right.is_undefined()) throw Failure(right.undefined().error_type, right.undefined().message());
    if (left.is_number() && right.is_number()) {
        if (left.is_float() || right.is_float()) return left.number() < right.number();
        return left.integer() < right.integer();
    }
    // UTF-8 keeps the order of code points.
    if (left.is_text() && right.is_text()) return left.bytes() < right.bytes();
    if (left.is_list_or_tuple() && right.is_list_or_tuple() && left.is_tuple() == right.is_tuple()) {
        const auto& a = left.list().items;
        const auto& b = right.list().items;
        for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
            if (!equals(a[i], b[i])) return less(a[i], b[i], operation);
        }
        return a.size() < b.size();
    }
    throw Failure("TypeError", std::string("'") + operation + "' not supported between instances of '" +
                                   left.type_name() + "' and '" + right.type_name() + "'");
}

Text to_text(const Value& value) {
    if (value.is_text()) return value.text();
    if (value.is_undefined()) return Text();
    if (value.is_none()) return Text("None");
    if (value.is_bool()) return Text(value.boolean() ? "True" : "False");
    if (value.is_int()) return Text(integer_text(value.integer()));
    if (value.is_float()) return Text(repr_of_float(value.floating()));
    if (value.is_range()) {
        const Range& range = value.range();
        std::string shown = "range(" + std::to_string(range.start) + ", " + std::to_string(range.stop);
        if (range.step != 1) shown += ", " + std::to_string(range.step);
        return Text(shown + ")");
    }
    // What an object shows may hold anything, so none of it forms control tokens.
    if (value.is_object()) return Text(value.object().repr(), true);
    return to_repr(value);
}

Text to_repr(const Value& value) {
    std::string out;
    append_repr(out, value, 0);
    return Text(std::move(out), has_request_text(value));
}

bool has_request_text(const Value& value) { return has_request_text(value, 0); }

std::string integer_text(Integer value) {
    if (value >= 0 && value <= 9) return std::string(1, static_cast<char>('0' + static_cast<int>(value)));
    std::string digits;
    const bool negative = value < 0;
    while (value != 0) {
        const int digit = static_cast<int>(value % 10);
        digits += static_cast<char>('0' + (digit < 0 ? -digit : digit));
        value /= 10;
    }
    if (negative) digits += '-';
    std::reverse(digits.begin(), digits.end());
    return digits;
}

std::string repr_of_float(double value) {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
    std::array<char, 64> buffer{};
    const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific);
    std::string_view text(buffer.data(), static_cast<std::size_t>(end.ptr - buffer.data()));
    const bool negative = text.starts_with('-');
    if (negative) text.remove_prefix(1);
    const std::size_t mark = text.find('e');
    std::string digits(text.substr(0, mark));
    std::erase(digits, '.');
    const int exponent = std::stoi(std::string(text.substr(mark + 1)));
    std::string out = negative ? "-" : "";
    if (exponent < -4 || exponent >= 16) {
        out += digits.substr(0, 1);
        if (digits.size() > 1) out += "." + digits.substr(1);
        const int size = exponent < 0 ? -exponent : exponent;
        return out + (exponent < 0 ? "e-" : "e+") + (size < 10 ? "0" : "") + std::to_string(size);
    }
    if (exponent < 0) return out + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
    const auto whole = static_cast<std::size_t>(exponent) + 1;
    if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
    return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

void require_hashable(const Value& value) {
    if (value.is_dict() || (value.is_list_or_tuple() && !value.is_tuple())) {
        throw Failure("TypeError", "unhashable type: '" + value.type_name() + "'");
    }
    if (value.is_tuple()) {
        for (const Value& item : value.list().items) require_hashable(item);
    }
}

}  // namespace attune::jinja
