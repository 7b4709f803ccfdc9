// A regular expression of an adapter's config, then NUL and a path: compiling and matching are bounded.
#include "engine/module/path_pattern.hpp"
#include "fuzz/fuzz_input.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace attune;
    const auto [text, path] = fuzz::split_at_nul(fuzz::text_of(data, size));
    const auto pattern = PathPattern::compile(text);
    if (!pattern) return 0;
    for (const std::string_view one : {std::string_view("model.layers.10.self_attn.q_proj"), path.substr(0, 256)})
        fuzz::demand(!pattern->full_match(one) || pattern->match(one));
    return 0;
}
