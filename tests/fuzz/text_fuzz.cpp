// Any text through tokenizers as models bring them (cut-down ones among the seeds of tokenizer_fuzz): streaming equals
// decoding.
#include "engine/text/pipeline_tokenizer.hpp"
#include "fuzz/fuzz_input.hpp"
#include "fuzz/tokenizer_checks.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>

namespace attune::fuzz {
namespace {

using Tokenizers = std::vector<std::shared_ptr<const Tokenizer>>;

Tokenizers load() {
    Tokenizers tokenizers;
    std::set<std::filesystem::path> paths;  // in one order everywhere: an input's first byte chooses
    for (const auto& entry : std::filesystem::directory_iterator(ATTUNE_FUZZ_SEEDS "/tokenizer"))
        paths.insert(entry.path());
    for (const auto& path : paths) {
        std::ifstream file(path, std::ios::binary);
        const std::string input{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
        const auto tokenizer = PipelineTokenizer::parse(split_at_nul(input).first);
        demand(static_cast<bool>(tokenizer));
        tokenizers.push_back(*tokenizer);
    }
    demand(!tokenizers.empty());
    return tokenizers;
}

}  // namespace
}  // namespace attune::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace attune;
    static const fuzz::Tokenizers kTokenizers = fuzz::load();
    if (size == 0) return 0;
    const Tokenizer& tokenizer = *kTokenizers[data[0] % kTokenizers.size()];
    const std::string_view input = fuzz::text_of(data + 1, size - 1);
    fuzz::check_text(tokenizer, input);
    if (!is_valid_utf8(input)) return 0;
    const std::string text(input);
    const auto ids = tokenizer.encode(text, false);
    fuzz::demand(fuzz::streamed(tokenizer, ids, false) == tokenizer.decode(ids, false));
    return 0;
}
