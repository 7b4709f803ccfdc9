#include "engine/text/bpe_tokenizer.hpp"

#include "engine/text/tokenizer_file.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
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

class DecodeStream final : public Tokenizer::Stream {
public:
    DecodeStream(std::shared_ptr<const BpeTokenizer> tokenizer, std::unique_ptr<Decoder::State> state, bool skip)
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
    std::shared_ptr<const BpeTokenizer> tokenizer_;  // the decoder's steps are borrowed by the state
    std::unique_ptr<Decoder::State> state_;
    bool skip_;
};

}  // namespace

void BpeTokenizer::take_added_tokens(std::vector<AddedToken> added) {
    added_ = std::move(added);
    std::erase_if(added_, [](const AddedToken& token) { return token.content.empty(); });
    vocab_size_ = model_.id_limit();
    for (AddedToken& token : added_) {
        // Content that the vocabulary knows keeps its id there, whatever the list says.
        token.id = model_.id_of(token.content).value_or(token.id);
        vocab_size_ = std::max(vocab_size_, token.id + 1);
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
        if (normalizer_) normalizer_->apply(content);
        contents.push_back(std::move(content.text));
        has_normalized_specials_ = has_normalized_specials_ || token->special;
    }
    after_normalizer_ = std::make_unique<AddedTokenMatcher>(std::move(normalized), contents);
}

Result<std::shared_ptr<const Tokenizer>> BpeTokenizer::parse(std::string_view json) {
    auto file = TokenizerFile::parse(json);
    if (!file) return file.error();
    auto model = BpeModel::build(std::move(file->model));
    if (!model) return model.error();
    const std::shared_ptr<BpeTokenizer> made(new BpeTokenizer(std::move(*model)));
    const auto part = [&](const char* name) {
        const auto found = file->rest.find(name);
        return found == file->rest.end() ? nlohmann::json() : *found;
    };
    try {
        auto normalizer = Normalizer::parse(part("normalizer"));
        if (!normalizer) return normalizer.error();
        made->normalizer_ = std::move(*normalizer);
        auto pre_tokenizer = PreTokenizer::parse(part("pre_tokenizer"));
        if (!pre_tokenizer) return pre_tokenizer.error();
        made->pre_tokenizer_ = std::move(*pre_tokenizer);
        auto decoder = Decoder::parse(part("decoder"));
        if (!decoder) return decoder.error();
        made->decoder_ = std::move(*decoder);
        auto post_processor = PostProcessor::parse(part("post_processor"));
        if (!post_processor) return post_processor.error();
        made->post_processor_ = std::move(*post_processor);
    } catch (const nlohmann::json::exception& error) {
        return make_error(Errc::invalid_argument, std::string("tokenizer.json: ") + error.what());
    }
    made->take_added_tokens(std::move(file->added));
    return std::shared_ptr<const Tokenizer>(made);
}

std::vector<TokenId> BpeTokenizer::encode(std::string_view text, bool add_special_tokens) const {
    return encode(text, add_special_tokens, {});
}

std::vector<TokenId> BpeTokenizer::encode(std::string_view text, bool add_special_tokens,
                                          std::span<const TextSpan> literal) const {
    std::vector<TokenId> ids;
    ids.reserve(text.size() / 3 + 8);
    if (add_special_tokens) ids = post_processor_.before;
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
    if (add_special_tokens) ids.insert(ids.end(), post_processor_.after.begin(), post_processor_.after.end());
    return ids;
}

void BpeTokenizer::encode_untouched(std::string_view text, bool at_start, std::size_t offset,
                                    std::span<const TextSpan> literal, std::vector<TokenId>& ids) const {
    NormalText normal;
    // Normalized text knows where it came from only when a special token in it has to be judged.
    const bool judged = !literal.empty() && has_normalized_specials_;
    if (normalizer_) {
        normal = NormalText::of(std::string(text), judged);
        normalizer_->apply(normal);
        text = normal.text;
    }
    Pieces pieces;
    if (after_normalizer_->empty()) {
        encode_normalized(text, at_start, pieces, ids);
        return;
    }
    AddedTokenMatcher::LiteralAt literal_at;
    if (judged) {
        literal_at = [&](std::size_t begin, std::size_t end) {
            if (normalizer_) {
                const std::size_t from = normal.origins[begin].begin;
                end = std::max<std::size_t>(normal.origins[end - 1].end, from);
                begin = from;
            }
            return literal_part(literal, offset + begin, offset + end);
        };
    }
    for (const auto& part : after_normalizer_->split(text, literal_at)) {
        if (part.token != nullptr) {
            ids.push_back(part.token->id);
        } else {
            encode_normalized(text.substr(part.begin, part.end - part.begin), at_start && part.begin == 0, pieces, ids);
        }
    }
}

void BpeTokenizer::encode_normalized(std::string_view text, bool at_start, Pieces& pieces,
                                     std::vector<TokenId>& ids) const {
    if (!pre_tokenizer_) {
        model_.encode(text, false, ids);
        return;
    }
    pieces.list.assign(1, Piece{text, at_start});
    pieces.owned.clear();
    pre_tokenizer_->apply(pieces);
    for (const Piece& piece : pieces.list) model_.encode(piece.text, pre_tokenizer_->ends_in_bytes(), ids);
}

const std::string* BpeTokenizer::decoder_input(TokenId id, bool skip_special_tokens, std::string& scratch) const {
    if (const auto added = added_by_id_.find(id); added != added_by_id_.end()) {
        return skip_special_tokens && added->second->special ? nullptr : &added->second->content;
    }
    const std::string_view text = model_.text_of(id);
    if (text.empty()) return nullptr;
    scratch.assign(text);
    return &scratch;
}

std::string BpeTokenizer::decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
    const auto state = decoder_->start(/*early=*/false);
    std::string out;
    std::string scratch;
    for (const TokenId id : ids) {
        if (const std::string* token = decoder_input(id, skip_special_tokens, scratch)) state->push(*token, out);
    }
    state->finish(out);
    return out;
}

bool BpeTokenizer::is_special(TokenId id) const {
    const auto added = added_by_id_.find(id);
    return added != added_by_id_.end() && added->second->special;
}

std::string BpeTokenizer::token_bytes(TokenId id) const {
    std::string scratch;
    const std::string* token = decoder_input(id, false, scratch);
    return token == nullptr ? std::string() : decoder_->bytes_of(*token);
}

std::unique_ptr<Tokenizer::Stream> BpeTokenizer::stream(bool skip_special_tokens) const {
    return std::make_unique<DecodeStream>(shared_from_this(), decoder_->start(/*early=*/true), skip_special_tokens);
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::open(const std::filesystem::path& folder) {
    const std::filesystem::path path = folder / "tokenizer.json";
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        for (const char* other : {"tokenizer.model", "tiktoken.model", "vocab.json"}) {
            if (std::filesystem::exists(folder / other)) {
                return make_error(Errc::unsupported, std::string("the model folder has ") + other +
                                                         " but no tokenizer.json; that form is not supported");
            }
        }
        return make_error(Errc::not_found, "the model folder has no tokenizer.json");
    }
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    return BpeTokenizer::parse(text);
}

}  // namespace attune
