#pragma once

#include "attune/result.hpp"

#include <nlohmann/json_fwd.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace attune {

/// tokenizer.json's `decoder`: token texts -> text. Immutable. One implementation serves whole lists and streams: a
/// list is pushed token by token, with `early` off.
class Decoder {
public:
    /// A JSON null joins tokens with spaces, as the reference does. Unknown types are refused by name.
    static Result<std::unique_ptr<const Decoder>> parse(const nlohmann::json& config);

    /// Where one stream stands.
    class State {
    public:
        virtual ~State() = default;
        /// Appends to `out` what has become certain.
        virtual void push(std::string_view token, std::string& out) = 0;
        virtual void finish(std::string& out) = 0;
        virtual std::unique_ptr<State> clone() const = 0;
    };

    virtual ~Decoder() = default;
    /// `early`: text leaves as soon as it is certain for well-formed input. Off: exactly what the whole list gives.
    virtual std::unique_ptr<State> start(bool early) const = 0;
    /// The bytes of one token alone.
    virtual std::string bytes_of(std::string_view token) const = 0;
};

}  // namespace attune
