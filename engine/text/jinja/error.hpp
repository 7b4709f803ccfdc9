#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace attune::jinja {

/// A template's failure on its way out of the evaluator: `type` is the name Python gives the exception. Never leaves
/// the engine; Template turns it into a value.
class Failure : public std::runtime_error {
public:
    Failure(std::string type, const std::string& message) : std::runtime_error(message), type_(std::move(type)) {}
    const std::string& type() const { return type_; }

private:
    std::string type_;
};

}  // namespace attune::jinja
