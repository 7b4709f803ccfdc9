#include "engine/text/pipeline_tokenizer.hpp"

#include "engine/text/byte_alphabet.hpp"
#include "engine/text/config_tokens.hpp"
#include "engine/text/unicode.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <unordered_set>
#include <utility>

namespace attune {
namespace {

using Literal = AddedTokenMatcher::Literal;

/// How much of [begin, end) of the untouched text lies in literal spans.
Literal literal_part(std::span<const TextSpan> spans, std::size_t begin, std::size_t end) {
    auto span = std::partition_point(spans.begin(), spans.end(), [&](const TextSpan& s) { return s.end <= begin; });
    std::size_t covered = 0;
    for (; span != spans.end() && span->begin < end; ++span) {
        if (span->literal) covered += std::min(span->end, end) - std::max(span->begin, begin);
    }
    if (covered == 0) return Literal::none;
    return covered == end - begin ? Literal::wholly : Literal::partly;
}

/// Bytes that valid UTF-8 may hold.
std::string every_byte_of_utf8() {
    std::string bytes;
    for (int byte = 0; byte <= 0xF4; ++byte) {
        if (byte != 0xC0 && byte != 0xC1) bytes.push_back(static_cast<char>(byte));
    }
    return bytes;
}

class DecodeStream final : public Tokenizer::Stream {
public:
    DecodeStream(std::shared_ptr<const PipelineTokenizer> tokenizer, std::unique_ptr<Decoder::State> state, bool skip)
        : tokenizer_(std::move(tokenizer)), state_(std::move(state)), skip_(skip) {}

    std::string push(TokenId id) override {
        std::string out;
        std::string scratch;
        if (const std::string* token = tokenizer_->decoder_input(id, skip_, scratch)) state_->push(*token, out);
        return out;
    }
    std::string flush() override {
        std::string out;
        state_->finish(out);
        return out;
    }
    std::unique_ptr<Stream> clone() const override {
        return std::make_unique<DecodeStream>(tokenizer_, state_->clone(), skip_);
    }

private:
    std::shared_ptr<const PipelineTokenizer> tokenizer_;  // the decoder's steps are borrowed by the state
    std::unique_ptr<Decoder::State> state_;
    bool skip_;
};

}  // namespace

PipelineTokenizer::PipelineTokenizer(std::shared_ptr<const TokenizerParts> parts, std::vector<AddedToken> added)
    : shared_(std::move(parts)), parts_(*shared_), added_(std::move(added)) {
    index_added_tokens();
    most_bytes_per_id_ = most_bytes_per_id();
}

void PipelineTokenizer::index_added_tokens() {
    std::erase_if(added_, [](const AddedToken& token) { return token.content.empty(); });
    vocab_size_ = parts_.model->id_limit();
    std::unordered_set<TokenId> special_ids;
    for (AddedToken& token : added_) {
        // Content that the vocabulary knows keeps its id there, whatever the list says.
        token.id = parts_.model->id_of(token.content).value_or(token.id);
        vocab_size_ = std::max(vocab_size_, token.id + 1);
        if (token.special) special_ids.insert(token.id);
    }
    is_control_.resize(static_cast<std::size_t>(parts_.model->id_limit()));
    for (AddedToken& token : added_) token.special = special_ids.contains(token.id);
    for (const TokenId id : special_ids) {
        const bool is_made = id >= 0 && id < parts_.model->id_limit() && id != unknown_id();
        if (is_made) is_control_[static_cast<std::size_t>(id)] = true;
    }
    std::vector<const AddedToken*> untouched;
    std::vector<const AddedToken*> normalized;
    // Specials come first: of two equal contents the first wins.
    for (const bool special : {true, false}) {
        for (const AddedToken& token : added_) {
            added_by_id_.emplace(token.id, &token);
            if (token.special == special) (token.normalized ? normalized : untouched).push_back(&token);
        }
    }
    std::vector<std::string> contents;
    for (const AddedToken* token : untouched) contents.push_back(token->content);
    before_normalizer_ = std::make_unique<AddedTokenMatcher>(std::move(untouched), contents);
    contents.clear();
    for (const AddedToken* token : normalized) {
        NormalText content = NormalText::of(token->content, false);
        if (parts_.normalizer) parts_.normalizer->apply(content);
        contents.push_back(std::move(content.text));
        has_normalized_specials_ = has_normalized_specials_ || token->special;
    }
    after_normalizer_ = std::make_unique<AddedTokenMatcher>(std::move(normalized), contents);
    for (const std::string& content : contents) longest_added_ = std::max(longest_added_, content.size());
}

std::size_t PipelineTokenizer::most_bytes_per_id() const {
    const bool in_bytes = parts_.pre_tokenizer && parts_.pre_tokenizer->ends_in_bytes();
    std::size_t longest = parts_.model->most_bytes_per_id(in_bytes);
    if (longest == 0 || (parts_.pre_tokenizer && !parts_.pre_tokenizer->keeps_text())) return 0;
    for (const AddedToken& token : added_) {
        if (token.lstrip || token.rstrip) return 0;  // any white space beside it goes with it
        // A single character that is a control token is none in a chat, and may be lost there.
        if (token.special && count_code_points(parts_.model->text_of(token.id)) == 1) return 0;
        longest = std::max(longest, token.content.size());
    }
    longest = std::max(longest, longest_added_);
    if (!parts_.normalizer) return longest;
    // Of rewritten bytes it is not known which ones the model keeps.
    const std::string all_bytes = every_byte_of_utf8();
    if (parts_.model->kept_bytes(all_bytes, in_bytes) < all_bytes.size()) return 0;
    return longest * parts_.normalizer->most_bytes_to_one();
}

int PipelineTokenizer::min_tokens(std::string_view text) const {
    if (most_bytes_per_id_ == 0) return 0;
    const bool in_bytes = parts_.pre_tokenizer && parts_.pre_tokenizer->ends_in_bytes();
    const std::size_t kept = parts_.model->kept_bytes(text, in_bytes);
    const std::size_t tokens = (kept + most_bytes_per_id_ - 1) / most_bytes_per_id_;
    return static_cast<int>(std::min<std::size_t>(tokens, std::numeric_limits<int>::max()));
}

std::shared_ptr<const Tokenizer> PipelineTokenizer::assemble(TokenizerParts parts) {
    std::vector<AddedToken> added = std::exchange(parts.added, {});
    return std::shared_ptr<const PipelineTokenizer>(
        new PipelineTokenizer(std::make_shared<const TokenizerParts>(std::move(parts)), std::move(added)));
}

Result<std::shared_ptr<const Tokenizer>> PipelineTokenizer::with_added(std::vector<AddedToken> more) const {
    std::vector<AddedToken> all = added_;
    all.reserve(added_.size() + more.size());  // `contents` points into it
    std::unordered_set<TokenId> ids;
    std::unordered_set<std::string_view> contents;
    for (const AddedToken& token : all) {
        ids.insert(token.id);
        contents.insert(token.content);
    }
    if (auto checked = check_added_ids(more); !checked) return checked.error();
    for (AddedToken& token : more) {
        const auto refuse = [&](const std::string& why) {
            return make_error(Errc::invalid_argument,
                              "added token \"" + token.content + "\" (id " + std::to_string(token.id) + "): " + why);
        };
        if (token.content.empty()) return refuse("it has no text");
        const auto known = parts_.model->id_of(token.content);
        if (known.value_or(token.id) != token.id) return refuse("the vocabulary has it as " + std::to_string(*known));
        if (!known && !parts_.model->text_of(token.id).empty()) return refuse("the vocabulary has another token there");
        if (!ids.insert(token.id).second) return refuse("another added token has this id");
        if (contents.contains(token.content)) return refuse("it is there already");
        all.push_back(std::move(token));
        contents.insert(all.back().content);
    }
    return std::shared_ptr<const Tokenizer>(
        std::shared_ptr<const PipelineTokenizer>(new PipelineTokenizer(shared_, std::move(all))));
}

Result<std::shared_ptr<const Tokenizer>> PipelineTokenizer::parse(std::string_view json) {
    auto parts = parts_of_tokenizer_json(json, {});
    if (!parts) return parts.error();
    return assemble(std::move(*parts));
}

std::vector<TokenId> PipelineTokenizer::encode(std::string_view text, bool add_special_tokens) const {
    return encode(text, add_special_tokens, {});
}

std::vector<TokenId> PipelineTokenizer::encode(std::string_view text, bool add_special_tokens,
                                               std::span<const TextSpan> literal) const {
    std::vector<TokenId> ids;
    ids.reserve(text.size() / 3 + 8);
    if (add_special_tokens) ids = parts_.post_processor.before;
    AddedTokenMatcher::LiteralAt literal_at;
    if (!literal.empty()) {
        literal_at = [&](std::size_t begin, std::size_t end) { return literal_part(literal, begin, end); };
    }
    if (before_normalizer_->empty()) {
        encode_untouched(text, true, 0, literal, ids);
    } else {
        for (const auto& part : before_normalizer_->split(text, literal_at)) {
            if (part.token != nullptr) {
                ids.push_back(part.token->id);
            } else {
                encode_untouched(text.substr(part.begin, part.end - part.begin), part.begin == 0, part.begin, literal,
                                 ids);
            }
        }
    }
    if (add_special_tokens)
        ids.insert(ids.end(), parts_.post_processor.after.begin(), parts_.post_processor.after.end());
    return ids;
}

void PipelineTokenizer::encode_untouched(std::string_view text, bool at_start, std::size_t offset,
                                         std::span<const TextSpan> literal, std::vector<TokenId>& ids) const {
    NormalText normal;
    // Normalized text knows where it came from only when a special token in it has to be judged.
    const bool judged = !literal.empty() && has_normalized_specials_;
    if (parts_.normalizer) {
        normal = NormalText::of(std::string(text), judged);
        parts_.normalizer->apply(normal);
        text = normal.text;
    }
    Pieces pieces;
    if (after_normalizer_->empty()) {
        const std::size_t first = ids.size();
        encode_normalized(text, at_start, pieces, ids);
        if (!literal.empty()) spell_out_controls(ids, first);
        return;
    }
    AddedTokenMatcher::LiteralAt literal_at;
    if (judged) {
        literal_at = [&](std::size_t begin, std::size_t end) {
            if (parts_.normalizer) {
                const std::size_t from = normal.origins[begin].begin;
                end = std::max<std::size_t>(normal.origins[end - 1].end, from);
                begin = from;
            }
            return literal_part(literal, offset + begin, offset + end);
        };
    }
    for (const auto& part : after_normalizer_->split(text, literal_at)) {
        const std::size_t first = ids.size();
        if (part.token != nullptr) {
            ids.push_back(part.token->id);
        } else {
            encode_normalized(text.substr(part.begin, part.end - part.begin), at_start && part.begin == 0, pieces, ids);
            if (!literal.empty()) spell_out_controls(ids, first);
        }
    }
}

void PipelineTokenizer::spell_out_controls(std::vector<TokenId>& ids, std::size_t first) const {
    // Rare: Unigram takes "</s>" for its piece of that name, SentencePiece knows tokens that users defined.
    const auto begin = ids.begin() + static_cast<std::ptrdiff_t>(first);
    if (std::none_of(begin, ids.end(), [this](TokenId id) { return is_control(id); })) return;
    const std::vector<TokenId> made(begin, ids.end());
    ids.resize(first);
    for (const TokenId id : made) {
        if (is_control(id)) {
            append_spelled(parts_.model->text_of(id), ids);
        } else {
            ids.push_back(id);
        }
    }
}

void PipelineTokenizer::append_spelled(std::string_view token, std::vector<TokenId>& ids) const {
    const auto text_id = [this](std::string_view text) {
        const TokenId id = parts_.model->id_of(text).value_or(-1);
        return is_control(id) ? -1 : id;
    };
    for (std::size_t at = 0; at < token.size();) {
        const std::string_view character = token.substr(at, code_point_at(token, at).bytes);
        at += character.size();
        const TokenId id = text_id(character);
        std::vector<TokenId> bytes;
        for (const char byte : character) bytes.push_back(text_id(fallback_token(static_cast<unsigned char>(byte))));
        if (id >= 0) {
            ids.push_back(id);
        } else if (std::find(bytes.begin(), bytes.end(), -1) == bytes.end()) {
            ids.insert(ids.end(), bytes.begin(), bytes.end());
        } else if (unknown_id() >= 0) {
            ids.push_back(unknown_id());
        }
    }
}

void PipelineTokenizer::encode_normalized(std::string_view text, bool at_start, Pieces& pieces,
                                          std::vector<TokenId>& ids) const {
    if (!parts_.pre_tokenizer) {
        if (at_start) {
            parts_.model->encode_first(text, false, ids);
        } else {
            parts_.model->encode(text, false, ids);
        }
        return;
    }
    pieces.list.assign(1, Piece{text, at_start});
    pieces.owned.clear();
    parts_.pre_tokenizer->apply(pieces);
    for (const Piece& piece : pieces.list) parts_.model->encode(piece.text, parts_.pre_tokenizer->ends_in_bytes(), ids);
}

const std::string* PipelineTokenizer::decoder_input(TokenId id, bool skip_special_tokens, std::string& scratch) const {
    if (const auto added = added_by_id_.find(id); added != added_by_id_.end()) {
        return skip_special_tokens && added->second->special ? nullptr : &added->second->content;
    }
    const std::string_view text = parts_.model->text_of(id);
    if (text.empty()) return nullptr;
    scratch.assign(text);
    return &scratch;
}

std::string PipelineTokenizer::decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
    const auto state = parts_.decoder->start(/*early=*/false);
    std::string out;
    std::string scratch;
    for (const TokenId id : ids) {
        if (const std::string* token = decoder_input(id, skip_special_tokens, scratch)) state->push(*token, out);
    }
    state->finish(out);
    return out;
}

bool PipelineTokenizer::is_special(TokenId id) const {
    const auto added = added_by_id_.find(id);
    return added != added_by_id_.end() && added->second->special;
}

std::string PipelineTokenizer::token_bytes(TokenId id) const {
    std::string scratch;
    const std::string* token = decoder_input(id, false, scratch);
    return token == nullptr ? std::string() : parts_.decoder->bytes_of(*token);
}

std::unique_ptr<Tokenizer::Stream> PipelineTokenizer::stream(bool skip_special_tokens) const {
    return std::make_unique<DecodeStream>(shared_from_this(), parts_.decoder->start(/*early=*/true),
                                          skip_special_tokens);
}

}  // namespace attune
