#pragma once

#include "attune/error.hpp"

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace attune {

/// Reads an object's fields strictly: wrong types and ranges become one error that names the first culprit. `null`
/// reads as absent. Reading goes on after a fault, so that callers check ok() once at the end.
class FieldReader {
public:
    /// `scope` is put before field names in messages, e.g. "attune." for nested objects.
    explicit FieldReader(const boost::json::object& object, std::string scope = {});

    /// The field's value unless absent or null; from then on the name is a known one.
    const boost::json::value* find(std::string_view name);
    std::optional<std::int64_t> integer(std::string_view name, std::int64_t low, std::int64_t high);
    std::optional<double> number(std::string_view name, double low, double high);
    std::optional<bool> boolean(std::string_view name);
    std::optional<std::string> string(std::string_view name, std::size_t max_bytes);
    const boost::json::object* object(std::string_view name);
    const boost::json::array* array(std::string_view name, std::size_t max_items);

    void fail(std::string_view name, std::string message, Errc code = Errc::invalid_argument);
    bool ok() const { return !error_; }
    const Error& error() const { return *error_; }
    /// Names that nothing asked for, at most a few, for the log.
    std::string unknown_fields() const;
    std::string path(std::string_view name) const { return scope_ + std::string(name); }

private:
    const boost::json::object& object_;
    std::string scope_;
    std::set<std::string, std::less<>> known_;
    std::optional<Error> error_;
};

/// A short rendering of a value for messages: scalars as JSON, the rest by kind.
std::string describe(const boost::json::value& value);
/// The value as an integer, if it is one and fits.
std::optional<std::int64_t> as_integer(const boost::json::value& value);

}  // namespace attune
