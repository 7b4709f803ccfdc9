#pragma once

#include "engine/text/pipeline_tokenizer.hpp"
#include "engine/text/unicode.hpp"
#include "parity_files.hpp"
#include "tally.hpp"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace attune {

/// The older library's value, where the two versions of the reference disagree.
inline std::string preferred(const nlohmann::json& row, const std::string& field) {
    return row.value(field + "_0_21", row.at(field).get<std::string>());
}

inline void check_corpus(const Tokenizer& tokenizer, const std::string& name, const std::filesystem::path& file) {
    Tally ids(name + " ids");
    Tally literal(name + " ids with specials as text");
    Tally texts(name + " decoded");
    const TokenId unknown = dynamic_cast<const PipelineTokenizer&>(tokenizer).unknown_id();
    for (const nlohmann::json& row : read_json_lines(file)) {
        const std::string text = row.at("text");
        const std::vector<TokenId> special = row.at("ids_special");
        ids.check(tokenizer.encode(text, false) == row.at("ids").get<std::vector<TokenId>>(), row.dump());
        ids.check(tokenizer.encode(text, true) == special, row.dump());
        const std::vector<TextSpan> all{{0, text.size(), true}};
        const std::vector<TokenId> as_text = row.contains("ids_literal") ? row.at("ids_literal") : row.at("ids");
        const auto is_control = [&](TokenId id) { return tokenizer.is_special(id) && id != unknown; };
        const std::vector<TokenId> ours = tokenizer.encode(text, false, all);
        // Where the reference's model itself makes a control token out of text, we do not follow it.
        const bool follows = std::none_of(as_text.begin(), as_text.end(), is_control);
        literal.check(follows ? ours == as_text : tokenizer.decode(ours, false) == tokenizer.decode(as_text, false),
                      row.dump());
        literal.check(std::none_of(ours.begin(), ours.end(), is_control), row.dump());
        texts.check(tokenizer.decode(special, false) == preferred(row, "decoded"), row.dump());
        texts.check(tokenizer.decode(special, true) == preferred(row, "decoded_skip"), row.dump());
    }
    ids.conclude();
    literal.conclude();
    texts.conclude();
}

/// What the reference's own stream had sent after each id; it may send less than is certain, never more.
inline std::vector<std::string> slowest(const nlohmann::json& row) {
    std::vector<std::string> sent;
    std::string so_far;
    for (const nlohmann::json& step : row.contains("hf_stream") ? row.at("hf_stream") : row.at("emit")) {
        if (step.is_string()) so_far += step.get<std::string>();
        sent.push_back(so_far);
    }
    return sent;
}

inline bool is_stream_right(const Tokenizer& tokenizer, const nlohmann::json& row) {
    const auto stream = tokenizer.stream(row.at("skip_special"));
    const bool total_only = row.contains("full_0_21");
    const std::vector<std::string> least = slowest(row);
    std::string sent;
    std::string certain;
    std::size_t at = 0;
    for (const TokenId id : row.at("ids").get<std::vector<TokenId>>()) {
        sent += stream->push(id);
        if (!is_valid_utf8(sent)) return false;
        if (row.contains("emit") && !total_only) {
            certain += row.at("emit").at(at).get<std::string>();
            if (sent.size() > certain.size()) return false;
            if (at < least.size() && sent.size() < least[at].size()) return false;
        }
        ++at;
    }
    sent += stream->flush();
    if (!is_valid_utf8(sent)) return false;
    return !row.contains("emit") || sent == preferred(row, "full");
}

inline void check_streams(const Tokenizer& tokenizer, const std::string& name, const std::filesystem::path& file) {
    Tally streams(name + " streams");
    for (const nlohmann::json& row : read_json_lines(file)) {
        streams.check(is_stream_right(tokenizer, row), row.dump());
    }
    streams.conclude();
}

}  // namespace attune
