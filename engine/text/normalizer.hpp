#pragma once

#include "attune/result.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace attune {

/// Text on its way through the normalizers. With `tracked`, origins[i] says which bytes of the untouched text byte i
/// stands for: only needed where provenance has to be known afterwards.
struct NormalText {
    struct Origin {
        std::uint32_t begin = 0;
        std::uint32_t end = 0;
    };
    std::string text;
    bool tracked = false;
    std::vector<Origin> origins;

    static NormalText of(std::string text, bool tracked);
};

/// One step of tokenizer.json's `normalizer`. Immutable.
class Normalizer {
public:
    /// Null for a JSON null. Unknown types are refused by name.
    static Result<std::unique_ptr<const Normalizer>> parse(const nlohmann::json& config);
    virtual ~Normalizer() = default;
    virtual void apply(NormalText& text) const = 0;
    /// How many bytes of text may become one; 0: any number.
    virtual std::size_t most_bytes_to_one() const { return 0; }
};

}  // namespace attune
