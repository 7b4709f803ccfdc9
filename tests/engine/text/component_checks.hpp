#pragma once

#include "engine/text/byte_alphabet.hpp"
#include "engine/text/decoder.hpp"
#include "engine/text/normalizer.hpp"
#include "engine/text/pre_tokenizer.hpp"
#include "parity_files.hpp"
#include "tally.hpp"

#include <catch2/catch.hpp>

#include <filesystem>
#include <string>
#include <vector>

namespace attune {

/// The rows of components/, one tally for each configuration.
template <class Run>
void check_components(const std::filesystem::path& file, Run&& run) {
    for (const nlohmann::json& row : read_json_lines(file)) {
        Tally cases(row.at("config").dump().substr(0, 200));
        run(row.at("config"), row.at("cases"), cases);
        cases.conclude();
    }
}

inline void check_normalizers(const std::filesystem::path& file) {
    check_components(file, [](const nlohmann::json& config, const nlohmann::json& cases, Tally& tally) {
        const auto normalizer = Normalizer::parse(config);
        REQUIRE(normalizer);
        for (const nlohmann::json& one : cases) {
            NormalText plain = NormalText::of(one.at("in"), false);
            (*normalizer)->apply(plain);
            tally.check(plain.text == one.at("out"), one.dump());
            NormalText tracked = NormalText::of(one.at("in"), true);
            (*normalizer)->apply(tracked);
            tally.check(tracked.text == one.at("out") && tracked.origins.size() == tracked.text.size(), one.dump());
        }
    });
}

inline void check_pre_tokenizers(const std::filesystem::path& file) {
    check_components(file, [](const nlohmann::json& config, const nlohmann::json& cases, Tally& tally) {
        const auto pre_tokenizer = PreTokenizer::parse(config);
        REQUIRE(pre_tokenizer);
        for (const nlohmann::json& one : cases) {
            const std::string text = one.at("in");
            Pieces pieces;
            pieces.list.push_back({text, true});
            (*pre_tokenizer)->apply(pieces);
            std::vector<std::string> found;
            for (const Piece& piece : pieces.list) {
                found.emplace_back();
                if (!(*pre_tokenizer)->ends_in_bytes()) {
                    found.back() = piece.text;
                    continue;
                }
                for (const char byte : piece.text) found.back() += byte_characters()[static_cast<unsigned char>(byte)];
            }
            std::vector<std::string> expected;
            for (const nlohmann::json& piece : one.at("out")) expected.push_back(piece.at(0));
            std::erase(expected, "");  // an empty text is no piece to us
            std::erase(found, "");
            tally.check(found == expected, one.dump());
        }
    });
}

inline void check_decoders(const std::filesystem::path& file) {
    check_components(file, [](const nlohmann::json& config, const nlohmann::json& cases, Tally& tally) {
        const auto decoder = Decoder::parse(config);
        REQUIRE(decoder);
        for (const nlohmann::json& one : cases) {
            if (one.at("out").is_null()) continue;  // the reference panics
            const auto state = (*decoder)->start(false);
            std::string text;
            for (const nlohmann::json& token : one.at("in")) state->push(token.get<std::string>(), text);
            state->finish(text);
            tally.check(text == one.at("out"), one.dump());
        }
    });
}

}  // namespace attune
