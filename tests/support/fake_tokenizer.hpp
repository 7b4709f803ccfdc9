#pragma once

#include "engine/text/tokenizer.hpp"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace attune {

/// A tokenizer one can compute in one's head: ids 0..255 are bytes, higher ones the words given to it. Text becomes a
/// word only where that was added.
class FakeTokenizer : public Tokenizer {
public:
    explicit FakeTokenizer(std::map<TokenId, std::string> words = {}, std::vector<TokenId> special = {})
        : words_(std::move(words)), special_(std::move(special)) {}

    std::vector<TokenId> encode(std::string_view text, bool /*add_special_tokens*/) const override {
        std::vector<TokenId> ids;
        while (!text.empty()) {
            const AddedToken* found = nullptr;
            for (const AddedToken& token : added_)
                if (text.starts_with(token.content)) found = &token;
            ids.push_back(found != nullptr ? found->id : static_cast<unsigned char>(text.front()));
            text.remove_prefix(found != nullptr ? found->content.size() : 1);
        }
        return ids;
    }
    std::vector<TokenId> encode(std::string_view text, bool add_special_tokens,
                                std::span<const TextSpan> /*literal*/) const override {
        return encode(text, add_special_tokens);
    }
    int min_tokens(std::string_view text) const override { return added_.empty() ? static_cast<int>(text.size()) : 0; }
    std::string decode(std::span<const TokenId> ids, bool skip_special_tokens) const override {
        const auto pieces = stream(skip_special_tokens);
        std::string text;
        for (const TokenId id : ids) text += pieces->push(id);
        return text + pieces->flush();
    }
    bool is_special(TokenId id) const override {
        for (const TokenId special : special_) {
            if (special == id) return true;
        }
        return false;
    }
    std::string token_bytes(TokenId id) const override {
        if (const auto word = words_.find(id); word != words_.end()) return word->second;
        return id < 256 ? std::string(1, static_cast<char>(id)) : std::string();
    }
    int vocab_size() const override { return 320; }
    std::unique_ptr<Stream> stream(bool skip_special_tokens) const override {
        return std::make_unique<ByteStream>(this, skip_special_tokens);
    }

    Result<std::shared_ptr<const Tokenizer>> with_added(std::vector<AddedToken> more) const override {
        auto words = words_;
        auto special = special_;
        for (const AddedToken& token : more) {
            words[token.id] = token.content;
            if (token.special) special.push_back(token.id);
        }
        auto made = std::make_shared<FakeTokenizer>(std::move(words), std::move(special));
        made->added_ = std::move(more);
        return std::shared_ptr<const Tokenizer>(std::move(made));
    }

private:
    class ByteStream final : public Stream {
    public:
        ByteStream(const FakeTokenizer* tokenizer, bool skip) : tokenizer_(tokenizer), skip_(skip) {}
        std::string push(TokenId id) override {
            if (skip_ && tokenizer_->is_special(id)) return {};
            bytes_ += tokenizer_->token_bytes(id);
            const std::string text = bytes_.substr(0, whole_bytes());
            bytes_.erase(0, text.size());
            return text;
        }
        std::string flush() override { return std::exchange(bytes_, {}).empty() ? std::string() : "\uFFFD"; }
        std::unique_ptr<Stream> clone() const override { return std::make_unique<ByteStream>(*this); }

    private:
        /// Up to the last complete character.
        std::size_t whole_bytes() const {
            std::size_t end = bytes_.size();
            std::size_t tail = 0;
            while (tail < end && (static_cast<unsigned char>(bytes_[end - 1 - tail]) & 0xC0) == 0x80) ++tail;
            if (tail < end) {
                const auto lead = static_cast<unsigned char>(bytes_[end - 1 - tail]);
                const std::size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
                if (tail + 1 < length) end -= tail + 1;
            }
            return end;
        }

        const FakeTokenizer* tokenizer_;
        bool skip_;
        std::string bytes_;
    };

    std::map<TokenId, std::string> words_;
    std::vector<TokenId> special_;
    std::vector<AddedToken> added_;
};

}  // namespace attune
