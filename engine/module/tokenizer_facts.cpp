#include "engine/module/tokenizer_facts.hpp"

#include "engine/files/hash.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <functional>
#include <istream>
#include <span>
#include <streambuf>
#include <string_view>
#include <vector>

namespace attune {
namespace {

constexpr std::uint64_t kMaxBytes = 256u << 20;
constexpr std::size_t kMaxDepth = 64;
constexpr std::size_t kMaxAdded = 1u << 20;

// A digest that tells two honest files apart; nothing is gained by forging it.
std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    std::uint64_t x = a * 0x9E3779B97F4A7C15ULL ^ (b + 0xD1B54A32D192ED03ULL);
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
    return x ^ (x >> 31);
}

std::uint64_t digest_of(std::string_view text) { return mix(3, std::hash<std::string_view>{}(text)); }

std::uint64_t digest_of(double number) { return mix(4, std::bit_cast<std::uint64_t>(number)); }

void set_flag(AddedTokenFact& fact, const std::string& name, bool value) {
    if (name == "single_word") fact.single_word = value;
    if (name == "lstrip") fact.lstrip = value;
    if (name == "rstrip") fact.rstrip = value;
    if (name == "normalized") fact.normalized = value;
    if (name == "special") fact.special = value;
}

/// nlohmann's SAX interface: digests of what is below each key of the document. Members of an object count in any
/// order, elements of a list in theirs.
class FactReader {
public:
    explicit FactReader(bool only_added = false) : only_added_(only_added) {}
    TokenizerFacts facts;
    bool has_added = false;  ///< the list of added tokens was read to its end

    bool null() { return value(0); }
    bool boolean(bool flag) {
        if (in_added_token()) set_flag(token_, frames_.back().key, flag);
        return value(flag ? 1 : 2, !flag);  // 0 is null
    }
    bool number_integer(std::int64_t number) { return integer(number); }
    bool number_unsigned(std::uint64_t number) { return integer(static_cast<std::int64_t>(number)); }
    bool number_float(double number, const std::string&) { return value(digest_of(number)); }
    bool string(std::string& text) {
        if (in_added_token() && frames_.back().key == "content") content_ = text;
        if (in_merges()) {
            // "a b" and ["a", "b"] are one merge.
            const std::size_t space = text.find(' ');
            if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos)
                return value(list_digest(
                    {digest_of(text.substr(0, space)), digest_of(std::string_view(text).substr(space + 1))}));
        }
        return value(digest_of(text), text.empty());
    }
    bool binary(std::vector<std::uint8_t>&) { return false; }
    bool start_object(std::size_t) {
        if (frames_.size() == 2 && in_added_tokens()) {
            token_ = {};
            content_.clear();
        }
        return open(/*is_object=*/true);
    }
    bool key(std::string& name) {
        frames_.back().key = name;
        return true;
    }
    bool end_object() {
        if (frames_.size() == 3 && in_added_tokens()) {
            if (facts.added.size() >= kMaxAdded) return false;
            if (!content_.empty()) facts.added[content_] = token_;
        }
        return close(5);
    }
    bool start_array(std::size_t) { return open(/*is_object=*/false); }
    bool end_array() {
        const bool was_added = frames_.size() == 2 && in_added_tokens();
        if (!close(6)) return false;
        has_added = has_added || was_added;
        return !(was_added && only_added_);
    }
    bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) { return false; }

private:
    struct Frame {
        bool is_object = false;
        std::string key;
        std::uint64_t digest = 0;
    };

    static std::uint64_t list_digest(std::initializer_list<std::uint64_t> elements) {
        std::uint64_t digest = 0;
        for (const std::uint64_t element : elements) digest = mix(digest, element);
        return mix(6, digest);
    }
    bool in_added_tokens() const { return frames_.size() >= 2 && frames_[0].key == "added_tokens"; }
    bool in_added_token() const { return frames_.size() == 3 && in_added_tokens() && frames_[2].is_object; }
    bool in_merges() const {
        return frames_.size() == 3 && !frames_[2].is_object && frames_[0].key == "model" && frames_[1].key == "merges";
    }
    bool integer(std::int64_t number) {
        if (in_added_token() && frames_.back().key == "id") token_.id = static_cast<TokenId>(number);
        return value(digest_of(static_cast<double>(number)));
    }
    bool open(bool is_object) {
        if (frames_.size() >= kMaxDepth) return false;
        frames_.push_back({is_object, {}, 0});
        return true;
    }
    bool close(std::uint64_t kind) {
        const std::uint64_t digest = mix(kind, frames_.back().digest);
        frames_.pop_back();
        return value(digest);
    }
    /// `is_default`: false, "" or the like, which a model's settings may leave out. Null may be left out anywhere.
    bool value(std::uint64_t digest, bool is_default = false) {
        if (frames_.empty()) return true;
        Frame& frame = frames_.back();
        const bool is_setting = frames_.size() == 2 && frames_[0].key == "model";
        if (!frame.is_object) {
            frame.digest = mix(frame.digest, digest);
        } else if (frames_.size() == 1) {
            // How to cut and pad a batch, and the file's age, are no part of the tokenizer.
            if (digest != 0 && frame.key != "version" && frame.key != "truncation" && frame.key != "padding" &&
                frame.key != "added_tokens")
                facts.parts[frame.key] = digest;
        } else if (digest != 0 && !(is_setting && is_default)) {
            frame.digest += mix(digest_of(frame.key), digest);
        }
        return true;
    }

    bool only_added_;
    std::vector<Frame> frames_;
    AddedTokenFact token_;
    std::string content_;
};

/// A file as a stream; one that shrinks while it is read just ends.
class FileBuffer : public std::streambuf {
public:
    explicit FileBuffer(const ReadOnlyFile& file) : file_(file), bytes_(64u << 10) {}

    /// SHA-256 of the file, of which the rest is read.
    std::string finish() {
        while (underflow() != traits_type::eof()) {
        }
        return hash_.hex();
    }

protected:
    int_type underflow() override {
        const std::uint64_t count = std::min<std::uint64_t>(bytes_.size(), file_.size() - at_);
        const std::span<char> some(bytes_.data(), count);
        if (count == 0 || !file_.read(at_, std::as_writable_bytes(some))) return traits_type::eof();
        at_ += count;
        hash_.update(std::as_bytes(some));
        setg(bytes_.data(), bytes_.data(), bytes_.data() + count);
        return traits_type::to_int_type(bytes_.front());
    }

private:
    const ReadOnlyFile& file_;
    std::vector<char> bytes_;
    std::uint64_t at_ = 0;
    Sha256 hash_;
};

Error no_tokenizer(const std::string& name) { return make_error(Errc::invalid_module, name + " is no tokenizer.json"); }

}  // namespace

Result<TokenizerFacts> read_tokenizer_facts(const ReadOnlyFile& file, const std::string& name) {
    if (file.size() > kMaxBytes) return make_error(Errc::invalid_module, name + " is larger than 256 MiB");
    FileBuffer buffer(file);
    std::istream stream(&buffer);
    FactReader reader;
    if (!nlohmann::json::sax_parse(stream, &reader)) return no_tokenizer(name);
    reader.facts.sha256 = buffer.finish();
    return std::move(reader.facts);
}

Result<AddedTokenFacts> read_added_tokens(const ReadOnlyFile& file, const std::string& name) {
    FileBuffer buffer(file);
    std::istream stream(&buffer);
    FactReader reader(/*only_added=*/true);
    if (!nlohmann::json::sax_parse(stream, &reader) && !reader.has_added) return no_tokenizer(name);
    return std::move(reader.facts.added);
}

AddedTokenFacts added_tokens_decoder(const OrderedJson& config) {
    AddedTokenFacts facts;
    const OrderedJson& decoder = member(config, "added_tokens_decoder");
    if (!decoder.is_object()) return facts;
    for (const auto& [key, token] : decoder.items()) {
        const OrderedJson& content = token.is_object() ? member(token, "content") : decoder;
        AddedTokenFact fact;
        const auto [end, fault] = std::from_chars(key.data(), key.data() + key.size(), fact.id);
        if (!content.is_string() || fault != std::errc() || end != key.data() + key.size()) continue;
        for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized", "special"})
            set_flag(fact, flag, member(token, flag) == true);
        facts[content.get<std::string>()] = fact;
    }
    return facts;
}

}  // namespace attune
