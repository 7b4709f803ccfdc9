#include "net/json_text.hpp"

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/value_stack.hpp>

#include <charconv>

namespace attune {
namespace {

using boost::json::error_code;
using boost::json::string_view;

/// What boost::json::parser does, but for one thing: its doubles (Boost 1.81) can be a bit beside the number that is
/// written, which would show in a chat template. Ours are the nearest, as every other reader's.
struct ValueBuilder {
    static constexpr std::size_t max_object_size = boost::json::object::max_size();
    static constexpr std::size_t max_array_size = boost::json::array::max_size();
    static constexpr std::size_t max_key_size = boost::json::string::max_size();
    static constexpr std::size_t max_string_size = boost::json::string::max_size();

    boost::json::value_stack values;

    bool on_document_begin(error_code&) {
        values.reset();
        return true;
    }
    bool on_document_end(error_code&) { return true; }
    bool on_object_begin(error_code&) { return true; }
    bool on_object_end(std::size_t size, error_code&) {
        values.push_object(size);
        return true;
    }
    bool on_array_begin(error_code&) { return true; }
    bool on_array_end(std::size_t size, error_code&) {
        values.push_array(size);
        return true;
    }
    bool on_key_part(string_view part, std::size_t, error_code&) {
        values.push_chars(part);
        return true;
    }
    bool on_key(string_view rest, std::size_t, error_code&) {
        values.push_key(rest);
        return true;
    }
    bool on_string_part(string_view part, std::size_t, error_code&) {
        values.push_chars(part);
        return true;
    }
    bool on_string(string_view rest, std::size_t, error_code&) {
        values.push_string(rest);
        return true;
    }
    bool on_number_part(string_view, error_code&) { return true; }
    bool on_int64(std::int64_t number, string_view, error_code&) {
        values.push_int64(number);
        return true;
    }
    bool on_uint64(std::uint64_t number, string_view, error_code&) {
        values.push_uint64(number);
        return true;
    }
    bool on_double(double number, string_view text, error_code&) {
        // The whole number: the document is read in one piece. Beyond double's range Boost's infinity or zero stays.
        std::from_chars(text.data(), text.data() + text.size(), number);
        values.push_double(number);
        return true;
    }
    bool on_bool(bool flag, error_code&) {
        values.push_bool(flag);
        return true;
    }
    bool on_null(error_code&) {
        values.push_null();
        return true;
    }
    bool on_comment_part(string_view, error_code&) { return true; }
    bool on_comment(string_view, error_code&) { return true; }
};

Error json_error(std::size_t position, std::string_view what) {
    return make_error(Errc::invalid_argument, "The body is not valid JSON: " + std::string(what) + " at byte " +
                                                  std::to_string(position) + ".");
}

}  // namespace

Result<boost::json::value> parse_json(std::string_view text, int max_depth) {
    boost::json::parse_options options;
    options.max_depth = static_cast<std::size_t>(max_depth);
    boost::json::basic_parser<ValueBuilder> parser(options);
    boost::json::error_code failure;
    const std::size_t parsed = parser.write_some(false, text.data(), text.size(), failure);
    if (failure) return json_error(parsed, failure.message());
    const std::size_t rest = text.find_first_not_of(" \t\r\n", parsed);
    if (rest != std::string_view::npos) return json_error(rest, "extra data");
    return parser.handler().values.release();
}

Result<boost::json::object> parse_json_object(std::string_view text, int max_depth, bool is_optional) {
    if (text.empty() && is_optional) return boost::json::object{};
    auto value = parse_json(text, max_depth);
    if (!value) return value.error();
    if (auto* object = value->if_object()) return std::move(*object);
    return make_error(Errc::invalid_argument, "The body must be a JSON object.");
}

}  // namespace attune
