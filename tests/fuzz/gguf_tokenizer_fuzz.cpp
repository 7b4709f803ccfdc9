// The tokenizer inside a GGUF file, on a fixed text and on the file's last bytes.
#include "engine/files/gguf.hpp"
#include "engine/text/gguf_tokenizer.hpp"
#include "engine/text/pipeline_tokenizer.hpp"
#include "fuzz/fuzz_input.hpp"
#include "fuzz/tokenizer_checks.hpp"

#include <algorithm>

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace attune;
    const auto header = parse_gguf_header(fuzz::bytes_of(data, size), "fuzz.gguf");
    if (!header) return 0;
    (void)named_tokens_of_gguf(*header);
    auto parts = parts_of_gguf(*header);
    if (!parts) {
        fuzz::demand(!parts.error().message.empty());
        return 0;
    }
    const auto tokenizer = PipelineTokenizer::assemble(std::move(*parts));
    fuzz::check_text(*tokenizer, "Ab 12  é\n<s>x</s> \xF0\x9F\x98\x80''s");
    constexpr std::size_t kTextBytes = 100;
    fuzz::check_text(*tokenizer, fuzz::text_of(data + size - std::min(size, kTextBytes), std::min(size, kTextBytes)));
    return 0;
}
