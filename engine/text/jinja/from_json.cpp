#include "engine/text/jinja/from_json.hpp"

#include "engine/text/jinja/error.hpp"

#include <nlohmann/json.hpp>

#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace attune::jinja {
namespace {

constexpr std::size_t kMaxDepth = 128;

/// Builds values while the parser reads: no tree of its own in between, and the order of keys is kept.
class Builder final : public nlohmann::json_sax<nlohmann::json> {
public:
    Value take() { return std::move(result_); }
    const std::string& error() const { return error_; }

    bool null() override { return put(Value()); }
    bool boolean(bool value) override { return put(Value(value)); }
    bool number_integer(number_integer_t value) override { return put(Value(static_cast<std::int64_t>(value))); }
    bool number_unsigned(number_unsigned_t value) override { return put(Value(static_cast<Integer>(value))); }
    bool number_float(number_float_t value, const string_t& text) override {
        // Integers beyond 64 bits arrive here too; Python keeps them whole.
        if (text.find_first_of(".eE") != std::string::npos) return put(Value(value));
        Integer whole = 0;
        const bool negative = text.starts_with('-');
        for (const char c : std::string_view(text).substr(negative ? 1 : 0)) {
            if (__builtin_mul_overflow(whole, 10, &whole) || __builtin_add_overflow(whole, c - '0', &whole)) {
                return put(Value(value));
            }
        }
        return put(Value(negative ? -whole : whole));
    }
    bool string(string_t& value) override { return put(Value(Text(std::move(value), true))); }
    bool binary(binary_t&) override { return false; }

    bool start_object(std::size_t) override { return open(true); }
    bool key(string_t& name) override {
        open_.back().key = Value(Text(std::move(name), true));
        return true;
    }
    bool end_object() override { return close(); }
    bool start_array(std::size_t) override { return open(false); }
    bool end_array() override { return close(); }
    bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
        error_ = error.what();
        return false;
    }

private:
    struct Container {
        bool is_object = false;
        Dict dict;
        List list;
        Value key;
    };

    bool open(bool is_object) {
        if (open_.size() >= kMaxDepth) {
            error_ = "nested too deeply";
            return false;
        }
        open_.emplace_back();
        open_.back().is_object = is_object;
        open_.back().dict.from_request = true;
        open_.back().list.from_request = true;
        return true;
    }
    bool close() {
        Container done = std::move(open_.back());
        open_.pop_back();
        return put(done.is_object ? Value(std::move(done.dict)) : Value(std::move(done.list)));
    }
    bool put(Value value) {
        if (open_.empty()) {
            result_ = std::move(value);
        } else if (open_.back().is_object) {
            open_.back().dict.set(std::move(open_.back().key), std::move(value));
        } else {
            open_.back().list.items.push_back(std::move(value));
        }
        return true;
    }

    std::vector<Container> open_;
    Value result_;
    std::string error_;
};

}  // namespace

Value value_from_json(std::string_view json) {
    Builder builder;
    if (!nlohmann::json::sax_parse(json, &builder)) {
        throw Failure("ValueError", "not valid JSON: " + builder.error());
    }
    return builder.take();
}

}  // namespace attune::jinja
