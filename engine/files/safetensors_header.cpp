#include "engine/files/safetensors_header.hpp"

#include "engine/files/quote.hpp"

#include <nlohmann/json.hpp>

#include <utility>

namespace attune {
namespace {

using Json = nlohmann::json;

// Reads the header in one pass without a document in memory: a header of 100 MB stays a header of 100 MB, and duplicate
// keys are seen, which a document would hide. The names of the handlers are nlohmann's.
class HeaderReader {
public:
    explicit HeaderReader(HeaderText& out) : out_(out) {}

    const std::string& fault() const { return fault_; }

    bool null() {
        if (depth_ == 1 && in_metadata_) return metadata_done();  // "__metadata__": null is no metadata
        return scalar("null");
    }
    bool boolean(bool) { return scalar("a truth value"); }
    bool number_integer(Json::number_integer_t) { return scalar("a negative number"); }
    bool number_unsigned(Json::number_unsigned_t value) {
        if (skipping()) return true;
        if (depth_ != 3) return scalar("a number");
        if (field_ == Field::shape) {
            entry_.shape.push_back(value);
            return true;
        }
        if (offsets_ == 2) return fail(where() + ": data_offsets has more than two numbers");
        (offsets_++ == 0 ? entry_.begin : entry_.end) = value;
        return true;
    }
    bool number_float(Json::number_float_t, const Json::string_t&) { return scalar("no whole number of 64 bits"); }
    bool string(Json::string_t& value) {
        if (skipping()) return true;
        if (depth_ == 2 && in_metadata_) {
            out_.metadata[key_] = std::move(value);
            return true;
        }
        if (depth_ == 2 && field_ == Field::dtype) {
            entry_.type_name = std::move(value);
            return true;
        }
        return scalar("a string");
    }
    bool binary(Json::binary_t&) { return scalar("binary"); }

    bool start_object(std::size_t) {
        if (skipping()) return deeper();
        if (depth_ == 0) return deeper();
        if (depth_ == 1) {
            entry_ = {};
            seen_ = 0;
            offsets_ = 0;
            return deeper();
        }
        return scalar("an object");
    }
    bool key(Json::string_t& name) {
        if (depth_ == 1) {
            in_metadata_ = name == "__metadata__";
            if (in_metadata_ && had_metadata_) return fail("__metadata__ appears twice");
            name_ = std::move(name);
            return true;
        }
        if (depth_ > 2) return true;  // inside a skipped field
        key_ = std::move(name);
        if (in_metadata_) return true;
        field_ = key_ == "dtype"          ? Field::dtype
                 : key_ == "shape"        ? Field::shape
                 : key_ == "data_offsets" ? Field::offsets
                                          : Field::other;
        if (field_ == Field::other) return true;
        const unsigned bit = 1U << static_cast<unsigned>(field_);
        if ((seen_ & bit) != 0) return fail(where() + ": " + key_ + " appears twice");
        seen_ |= bit;
        return true;
    }
    bool end_object() {
        --depth_;
        if (depth_ != 1) return true;
        if (in_metadata_) return metadata_done();
        for (const auto& [field, label] :
             {std::pair{Field::dtype, "dtype"}, {Field::shape, "shape"}, {Field::offsets, "data_offsets"}})
            if ((seen_ & (1U << static_cast<unsigned>(field))) == 0)
                return fail(where() + ": " + label + " is missing");
        out_.entries.insert_or_assign(name_, std::move(entry_));
        return true;
    }
    bool start_array(std::size_t) {
        if (skipping()) return deeper();
        if (depth_ == 2 && !in_metadata_ && (field_ == Field::shape || field_ == Field::offsets)) return deeper();
        return scalar("an array");
    }
    bool end_array() {
        --depth_;
        if (depth_ == 2 && field_ == Field::offsets && offsets_ != 2)
            return fail(where() + ": data_offsets has " + std::to_string(offsets_) + " numbers, not two");
        return true;
    }
    bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) {
        return fail("the header is not valid JSON at byte " + std::to_string(position));
    }

private:
    enum class Field : unsigned { dtype, shape, offsets, other };
    static constexpr int kMaxDepth = 127;  // serde's limit

    // An unknown field of an entry is skipped with all that is in it, as the reference library does.
    bool skipping() const { return depth_ >= 2 && !in_metadata_ && field_ == Field::other; }
    bool deeper() {
        if (++depth_ > kMaxDepth) return fail("the header is nested too deeply");
        return true;
    }
    bool metadata_done() {
        had_metadata_ = true;
        in_metadata_ = false;
        return true;
    }
    std::string where() const { return in_metadata_ ? std::string("__metadata__") : "tensor " + in_quotes(name_); }
    bool scalar(const std::string& found) {
        if (skipping()) return true;
        if (depth_ == 0) return fail("the header is " + found + ", not an object");
        if (in_metadata_ && depth_ == 1) return fail("__metadata__ is " + found + ", not an object");
        if (in_metadata_) return fail("__metadata__ holds " + found + " where only strings are allowed");
        if (depth_ == 1) return fail(where() + ": its entry is " + found + ", not an object");
        return fail(where() + ": " + key_ + " holds " + found);
    }
    bool fail(std::string fault) {
        if (fault_.empty()) fault_ = std::move(fault);
        return false;
    }

    HeaderText& out_;
    std::string fault_;
    int depth_ = 0;
    bool in_metadata_ = false;
    bool had_metadata_ = false;
    std::string name_;  // tensor
    std::string key_;   // field of its entry, or metadata key
    Field field_ = Field::other;
    unsigned seen_ = 0;
    int offsets_ = 0;
    HeaderEntry entry_;
};

}  // namespace

Result<HeaderText> parse_header_text(std::string_view json, const std::string& file_name) {
    const auto refuse = [&](const std::string& fault) {
        return make_error(Errc::invalid_module, file_name + ": " + fault);
    };
    // nlohmann skips a byte order mark and takes NUL for the end of the text; JSON knows neither.
    if (json.starts_with("\xEF\xBB\xBF")) return refuse("the header begins with a byte order mark");
    if (json.find('\0') != std::string_view::npos) return refuse("the header holds a NUL byte");
    HeaderText text;
    HeaderReader reader(text);
    if (!Json::sax_parse(json.begin(), json.end(), &reader)) return refuse(reader.fault());
    return text;
}

bool stored_type(std::string_view type_name, StoredType& type, std::uint64_t& bits) {
    struct Known {
        std::string_view name;
        StoredType type;
        std::uint64_t bits;
    };
    static constexpr Known kKnown[] = {
        {"F64", StoredType::f64, 64},          {"F32", StoredType::f32, 32},
        {"F16", StoredType::f16, 16},          {"BF16", StoredType::bf16, 16},
        {"I64", StoredType::i64, 64},          {"I32", StoredType::i32, 32},
        {"I16", StoredType::i16, 16},          {"I8", StoredType::i8, 8},
        {"U64", StoredType::u64, 64},          {"U32", StoredType::u32, 32},
        {"U16", StoredType::u16, 16},          {"U8", StoredType::u8, 8},
        {"BOOL", StoredType::boolean, 8},      {"F4", StoredType::other, 4},
        {"F6_E2M3", StoredType::other, 6},     {"F6_E3M2", StoredType::other, 6},
        {"F8_E5M2", StoredType::other, 8},     {"F8_E4M3", StoredType::other, 8},
        {"F8_E8M0", StoredType::other, 8},     {"F8_E4M3FNUZ", StoredType::other, 8},
        {"F8_E5M2FNUZ", StoredType::other, 8}, {"C64", StoredType::other, 64},
    };
    for (const Known& known : kKnown)
        if (known.name == type_name) {
            type = known.type;
            bits = known.bits;
            return true;
        }
    return false;
}

}  // namespace attune
