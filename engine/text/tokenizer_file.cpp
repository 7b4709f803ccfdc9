#include "engine/text/tokenizer_file.hpp"

#include <string>
#include <utility>

namespace attune {
namespace {

using nlohmann::json;

/// Takes the two large lists out of the document while it is parsed, so that no tree is built for them.
class LargeLists {
public:
    explicit LargeLists(TokenizerFile& file) : file_(file), model_(file.model) {}

    /// nlohmann's parser callback: false drops the value.
    bool operator()(int depth, json::parse_event_t event, json& value) {
        using Event = json::parse_event_t;
        if (event == Event::key && depth == 1) in_model_ = value.get_ref<const std::string&>() == "model";
        if (!in_model_) return true;
        if (event == Event::key && depth == 2) {
            const auto& key = value.get_ref<const std::string&>();
            list_ = key == "vocab" ? List::vocabulary : key == "merges" ? List::merges : List::none;
            return true;
        }
        if (depth < 3 || list_ == List::none) return true;
        if (list_ == List::vocabulary) {
            take_vocabulary(depth, event, value);
        } else {
            take_merge(depth, event, value);
        }
        return event == json::parse_event_t::array_start;  // what is in a dropped array would not be shown to us
    }
    bool malformed() const { return malformed_; }

private:
    enum class List { none, vocabulary, merges };

    /// {"a": 0, ...}, or for Unigram [["a", -1.5], ...].
    void take_vocabulary(int depth, json::parse_event_t event, json& value) {
        using Event = json::parse_event_t;
        if (event == Event::key) {
            token_ = std::move(value.get_ref<std::string&>());
        } else if (event == Event::value && depth == 3 && value.is_number_integer()) {
            model_.vocabulary.emplace_back(std::move(token_), value.get<TokenId>());
        } else if (event == Event::array_start && depth == 3) {
            parts_ = 0;
        } else if (event == Event::value && depth == 4 && parts_ == 0 && value.is_string()) {
            parts_ = 1;
            token_ = std::move(value.get_ref<std::string&>());
        } else if (event == Event::value && depth == 4 && parts_ == 1 && value.is_number()) {
            parts_ = 2;
            model_.vocabulary.emplace_back(std::move(token_), static_cast<TokenId>(file_.scores.size()));
            file_.scores.push_back(value.get<double>());
        } else if (event != Event::array_end || parts_ != 2) {
            malformed_ = true;
        }
    }
    /// "a b", or since 0.20 ["a", "b"] so that tokens may hold spaces.
    void take_merge(int depth, json::parse_event_t event, json& value) {
        using Event = json::parse_event_t;
        if (event == Event::array_start) {
            pair_.clear();
        } else if (event == Event::array_end) {
            if (pair_.size() != 2) malformed_ = true;
            if (pair_.size() == 2) model_.merges.emplace_back(std::move(pair_[0]), std::move(pair_[1]));
            pair_.clear();
        } else if (event != Event::value || !value.is_string()) {
            malformed_ = true;
        } else if (depth == 4) {
            pair_.push_back(std::move(value.get_ref<std::string&>()));
        } else {
            const auto& line = value.get_ref<const std::string&>();
            const std::size_t space = line.find(' ');
            if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos) malformed_ = true;
            if (!malformed_) model_.merges.emplace_back(line.substr(0, space), line.substr(space + 1));
        }
    }

    TokenizerFile& file_;
    BpeConfig& model_;
    bool in_model_ = false;
    List list_ = List::none;
    std::string token_;
    int parts_ = 0;  // of the entry under way
    std::vector<std::string> pair_;
    bool malformed_ = false;
};

std::string text_or_nothing(const json& object, const char* key) {
    const auto found = object.find(key);
    return found == object.end() || found->is_null() ? std::string() : found->get<std::string>();
}

bool flag(const json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_boolean() && found->get<bool>();
}

Result<void> read_model(const json& model, BpeConfig& config) {
    const std::string type = text_or_nothing(model, "type");
    if (!type.empty() && type != "BPE" && type != "Unigram" && type != "WordPiece") {
        return make_error(Errc::unsupported, "tokenizer.json: model " + type + " is not supported");
    }
    if (const auto dropout = model.find("dropout");
        dropout != model.end() && dropout->is_number() && dropout->get<double>() != 0) {
        return make_error(Errc::unsupported, "tokenizer.json: BPE with dropout is not supported");
    }
    config.unknown_token = text_or_nothing(model, "unk_token");
    config.continuing_prefix = text_or_nothing(model, "continuing_subword_prefix");
    config.end_suffix = text_or_nothing(model, "end_of_word_suffix");
    config.fuse_unknown = flag(model, "fuse_unk");
    config.byte_fallback = flag(model, "byte_fallback");
    config.ignore_merges = flag(model, "ignore_merges");
    return {};
}

AddedToken read_added(const json& token) {
    AddedToken added;
    added.id = token.at("id").get<TokenId>();
    added.content = token.at("content").get<std::string>();
    added.single_word = flag(token, "single_word");
    added.lstrip = flag(token, "lstrip");
    added.rstrip = flag(token, "rstrip");
    added.special = flag(token, "special");
    added.normalized = token.value("normalized", !added.special);
    return added;
}

}  // namespace

Result<TokenizerFile> TokenizerFile::parse(std::string_view text) {
    TokenizerFile file;
    LargeLists lists(file);
    try {
        // The callback is copied by the parser, hence the reference.
        file.rest = json::parse(
            text, [&lists](int depth, json::parse_event_t event, json& value) { return lists(depth, event, value); });
        const auto model = file.rest.find("model");
        if (model == file.rest.end() || !model->is_object()) {
            return make_error(Errc::invalid_argument, "tokenizer.json: no model");
        }
        if (auto read = read_model(*model, file.model); !read) return read.error();
        const bool is_scored = text_or_nothing(*model, "type") == "Unigram";
        if (lists.malformed() || file.scores.size() != (is_scored ? file.model.vocabulary.size() : 0)) {
            return make_error(Errc::invalid_argument, "tokenizer.json: vocab or merges have an unknown form");
        }
        if (const auto added = file.rest.find("added_tokens"); added != file.rest.end() && added->is_array()) {
            for (const json& token : *added) file.added.push_back(read_added(token));
        }
    } catch (const json::exception& error) {
        return make_error(Errc::invalid_argument, std::string("tokenizer.json: ") + error.what());
    }
    return file;
}

}  // namespace attune
