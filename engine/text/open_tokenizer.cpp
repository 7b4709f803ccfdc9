#include "engine/text/pipeline_tokenizer.hpp"
#include "engine/text/tokenizer.hpp"

#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>

namespace attune {
namespace {

std::optional<std::string> read_file(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return std::nullopt;
    return std::string{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::open(const std::filesystem::path& folder) {
    if (const auto text = read_file(folder / "tokenizer.json")) {
        auto parts = parts_of_tokenizer_json(*text, read_file(folder / "tokenizer_config.json").value_or(""));
        if (!parts) return parts.error();
        return PipelineTokenizer::assemble(std::move(*parts));
    }
    for (const char* other : {"tokenizer.model", "tiktoken.model", "vocab.json"}) {
        std::error_code failed;
        if (std::filesystem::exists(folder / other, failed)) {
            return make_error(Errc::unsupported, std::string("the model folder has ") + other +
                                                     " but no tokenizer.json; that form is not supported");
        }
    }
    return make_error(Errc::not_found, "the model folder has no tokenizer.json");
}

}  // namespace attune
