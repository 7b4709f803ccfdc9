// tokenizer.json, then NUL and a text for it: whatever the file says, ids are in range, text stays UTF-8, and what is
// streamed is what the whole list decodes to.
#include "fuzz/tokenizer_checks.hpp"

#include "engine/text/pipeline_tokenizer.hpp"
#include "fuzz/fuzz_input.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace attune;
    const auto [json, text] = fuzz::split_at_nul(fuzz::text_of(data, size));
    const auto tokenizer = PipelineTokenizer::parse(json);
    if (!tokenizer) return 0;
    fuzz::check_text(**tokenizer, text);
    fuzz::check_text(**tokenizer, "Ab 12  é\n<s>x</s> \xF0\x9F\x98\x80''s");
    return 0;
}
