#include "component_checks.hpp"
#include "engine/text/tokenizer.hpp"
#include "parity_files.hpp"
#include "tokenizer_checks.hpp"

#include <catch2/catch.hpp>

namespace attune {
namespace {

void check_folder(const std::string& folder) {
    const auto tokenizer = Tokenizer::open(parity_path(folder));
    REQUIRE(tokenizer);
    check_corpus(**tokenizer, folder, parity_path(folder + "/corpus_expected.jsonl"));
    check_streams(**tokenizer, folder, parity_path(folder + "/stream_expected.jsonl"));
}

}  // namespace

TEST_CASE("every normalizer gives the reference's text", "[engine][text][parity]") {
    check_normalizers(parity_path("tokenizers/components/normalizers.jsonl"));
}

TEST_CASE("every pre-tokenizer gives the reference's pieces", "[engine][text][parity]") {
    check_pre_tokenizers(parity_path("tokenizers/components/pre_tokenizers.jsonl"));
}

TEST_CASE("every decoder gives the reference's text", "[engine][text][parity]") {
    check_decoders(parity_path("tokenizers/components/decoders.jsonl"));
}

TEST_CASE("SmolLM2's tokenizer gives the reference's ids, texts and streams", "[engine][text][parity]") {
    check_folder("smollm2");
}

TEST_CASE("tokenizers of other families give the reference's ids, texts and streams", "[engine][text][parity][D3]") {
    const std::string name = GENERATE(as<std::string>(), "added_zoo", "deepseek_llm", "deepseek_v3", "gemma", "gpt2",
                                      "gpt2_prefix", "llama2", "llama2_legacy", "llama3", "metaspace_split",
                                      "mistral_v3", "o200k", "qwen2", "smollm", "spm_unk");
    check_folder("tokenizers/" + name);
}

}  // namespace attune
