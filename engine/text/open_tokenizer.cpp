#include "engine/files/model_path.hpp"
#include "engine/text/gguf_tokenizer.hpp"
#include "engine/text/pipeline_tokenizer.hpp"
#include "engine/text/sentencepiece_tokenizer.hpp"
#include "engine/text/tokenizer.hpp"
#include "engine/text/vocab_and_merges.hpp"
#include "engine/text/whole_file.hpp"

#include <algorithm>
#include <cctype>
#include <optional>
#include <string>
#include <system_error>

namespace attune {
namespace {

/// tiktoken's text form: base64, a space and a rank on each line.
bool is_tiktoken(std::string_view bytes) {
    const std::string_view line = bytes.substr(0, std::min(bytes.find('\n'), bytes.size()));
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == line.size()) return false;
    const auto is_base64 = [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '+' || c == '/' || c == '=';
    };
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    return std::all_of(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(space), is_base64) &&
           std::all_of(line.begin() + static_cast<std::ptrdiff_t>(space) + 1, line.end(), is_digit);
}

Error tiktoken_refused(const std::string& name) {
    return make_error(Errc::unsupported, name +
                                             " is a tiktoken file, which does not say how text is split; a "
                                             "tokenizer.json is needed");
}

Result<TokenizerParts> parts_of_gguf_file(const std::filesystem::path& path) {
    const auto header = read_gguf_header(path);
    if (!header) return header.error();
    return parts_of_gguf(*header);
}

Result<TokenizerParts> parts_of_folder(const std::filesystem::path& folder) {
    const std::string config = read_whole_file(folder / "tokenizer_config.json").value_or("");
    if (const auto text = read_whole_file(folder / "tokenizer.json")) return parts_of_tokenizer_json(*text, config);
    if (const auto bytes = read_whole_file(folder / "tokenizer.model")) {
        if (is_tiktoken(*bytes)) return tiktoken_refused("tokenizer.model");
        return parts_of_sentencepiece(*bytes, config);
    }
    if (const auto vocab = read_whole_file(folder / "vocab.json")) {
        const auto merges = read_whole_file(folder / "merges.txt");
        if (!merges) {
            return make_error(Errc::unsupported,
                              "the model folder has vocab.json, but neither tokenizer.json nor merges.txt");
        }
        return parts_of_vocab_and_merges(*vocab, *merges, config);
    }
    std::error_code failed;
    for (const auto& entry : std::filesystem::directory_iterator(folder, failed)) {
        const std::filesystem::path name = entry.path().filename();
        if (name.extension() == ".tiktoken" || name == "tiktoken.model") return tiktoken_refused(name.string());
    }
    return make_error(Errc::not_found, "the model folder has no tokenizer.json");
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::open(const std::filesystem::path& model) {
    auto parts = is_gguf_file(model) ? parts_of_gguf_file(model) : parts_of_folder(model);
    if (!parts) return parts.error();
    return PipelineTokenizer::assemble(std::move(*parts));
}

}  // namespace attune
