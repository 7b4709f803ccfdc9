#include "engine/route/classifier.hpp"

#include "attune/utf8.hpp"
#include "engine/kernels/row_sums.hpp"
#include "engine/route/route_text.hpp"
#include "engine/text/unicode.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <mutex>
#include <set>
#include <utility>

namespace attune {
namespace {

constexpr std::string_view kMagic = "attnrout";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kLabelBytes = 512;
constexpr double kLearnedRate = 0.05;

float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

/// To nearest, ties to even; the values are finite.
std::uint16_t to_bf16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    return static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

/// Up or down by chance, such that the mean is the value itself: a step far smaller than a bfloat16 tells apart still
/// counts once in a while. `noise` is 16 random bits.
std::uint16_t to_bf16_by_chance(float value, std::uint32_t noise) {
    return static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(value) + noise) >> 16);
}

std::uint64_t fnv(std::string_view bytes) {
    std::uint64_t hash = 0xcbf29ce484222325ull;
    for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
    return hash;
}

template <class T>
void put(std::string& out, T value) {
    static_assert(std::endian::native == std::endian::little);
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    out.append(bytes, sizeof value);
}

/// Takes values from the front; false when too few bytes are left.
struct Reader {
    std::string_view bytes;

    template <class T>
    bool take(T& value) {
        if (bytes.size() < sizeof value) return false;
        std::memcpy(&value, bytes.data(), sizeof value);
        bytes.remove_prefix(sizeof value);
        return true;
    }
    bool take(std::string& text, std::size_t count) {
        if (bytes.size() < count) return false;
        text = bytes.substr(0, count);
        bytes.remove_prefix(count);
        return true;
    }
};

// Told apart by where they start, so that a pair of words is no run of characters.
constexpr std::uint64_t kWord = 0x510A5F3B00000001ull, kPair = 0xA3C9D1E700000001ull;
constexpr std::uint64_t kRun3 = 0x1F3B00000001ull, kRun4 = 0x2E5D00000003ull, kRun5 = 0x3D7F00000005ull;
constexpr std::uint64_t kMix = 0x9E3779B97F4A7C15ull;
// A character as a run sees it: ASCII as it is, others by 12 bits of their hash. Five of them fit one word.
constexpr int kCodeBits = 12;

std::uint64_t code_of(char32_t c) { return c < 0x80 ? c : (c * 0x9E3779B1u) >> (32 - kCodeBits) | 0x80u; }

constexpr auto kAsciiWord = [] {
    std::array<bool, 128> table{};
    for (int c = 0; c < 128; ++c)
        table[static_cast<std::size_t>(c)] =
            (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    return table;
}();

enum class Place : std::uint8_t { gap, in_word, word };

Place place_of(char32_t c) {
    return is_word_by_itself(c) ? Place::word : is_word_character(c) ? Place::in_word : Place::gap;
}

/// Looked up for the alphabets, Indic and Thai among them, and worked out for the rest.
Place quick_place_of(char32_t c) {
    static const std::vector<Place> kAlphabets = [] {
        std::vector<Place> places;
        for (char32_t one = 0; one < 0x3000; ++one) places.push_back(place_of(one));
        return places;
    }();
    return c < kAlphabets.size() ? kAlphabets[c] : place_of(c);
}

/// Walks over a text and writes buckets. Every character gives at most three runs, a word and a pair.
class FeatureWriter {
public:
    FeatureWriter(int bits, std::uint32_t* out) : shift_(64 - bits), out_(out) {}

    std::uint32_t* write(std::string_view text) {
        for (std::size_t at = 0; at < text.size();) {
            const auto byte = static_cast<unsigned char>(text[at]);
            if (byte < 0x80) {
                ++at;
                kAsciiWord[byte] ? letter(byte) : gap();
                continue;
            }
            const CodePoint c = code_point_at(text, at);
            at += c.bytes;
            const Place place = quick_place_of(c.value);
            if (place == Place::word) end_word();
            place == Place::gap ? gap() : letter(c.value);
            if (place == Place::word) end_word();
        }
        end_word();
        return out_;
    }

private:
    void put(std::uint64_t hash) { *out_++ = static_cast<std::uint32_t>(hash >> shift_); }

    void letter(char32_t c) {
        word_ = (word_ ^ c) * kMix;
        word_ ^= word_ >> 29;
        in_word_ = true;
        run(code_of(c));
    }
    /// Whatever stands between words is one space.
    void gap() {
        end_word();
        if ((window_ & ((1u << kCodeBits) - 1)) != ' ') run(' ');
    }
    void end_word() {
        if (!in_word_) return;
        put(word_ * kWord);
        if (before_ != 0) put((before_ ^ (word_ << 1)) * kPair);
        before_ = word_ | 1;
        word_ = 0;
        in_word_ = false;
    }
    void run(std::uint64_t code) {
        constexpr auto kMask = [](int characters) { return (std::uint64_t{1} << (characters * kCodeBits)) - 1; };
        window_ = window_ << kCodeBits | code;
        ++seen_;
        if (seen_ < 3) return;
        put(((window_ & kMask(3)) ^ kRun3) * kMix);
        if (seen_ >= 4) put(((window_ & kMask(4)) ^ kRun4) * kMix);
        if (seen_ >= 5) put(((window_ & kMask(5)) ^ kRun5) * kMix);
    }

    int shift_;
    std::uint32_t* out_;
    std::uint64_t window_ = ' ';  ///< the last characters, the newest lowest; a text begins after a space
    std::uint64_t word_ = 0;
    std::uint64_t before_ = 0;  ///< the word before; 0: none
    std::size_t seen_ = 1;
    bool in_word_ = false;
};

}  // namespace

void hash_features(std::string_view text, int bits, std::vector<std::uint32_t>& out) {
    text = beginning_of(text, Classifier::kScannedBytes);
    out.resize(5 * text.size() + 2);
    out.resize(static_cast<std::size_t>(FeatureWriter(bits, out.data()).write(text) - out.data()));
}

std::vector<double> probabilities(std::span<const double> logits, double temperature) {
    const double top = *std::max_element(logits.begin(), logits.end());
    std::vector<double> out;
    out.reserve(logits.size());
    double sum = 0;
    for (const double logit : logits) sum += out.emplace_back(std::exp((logit - top) / temperature));
    for (double& one : out) one /= sum;
    return out;
}

std::vector<double> scaled_logits(std::span<const float> biases, std::span<const float> sums, std::size_t features) {
    const double scale = features == 0 ? 0 : 1 / std::sqrt(static_cast<double>(features));
    std::vector<double> out(biases.size());
    for (std::size_t label = 0; label < out.size(); ++label) out[label] = biases[label] + scale * sums[label];
    return out;
}

Classifier::Classifier(std::vector<std::string> labels, int bits)
    : labels_(std::move(labels)),
      bits_(bits),
      stride_(row_sums_stride(labels_.size())),
      biases_(labels_.size()),
      weights_(stride_ << bits) {}

std::vector<double> Classifier::logits(std::span<const std::uint32_t> features) const {
    thread_local std::vector<float> sums;
    sums.resize(stride_);
    row_sums(weights_.data(), features, sums);
    return scaled_logits(biases_, sums, features.size());
}

void Classifier::set_biases(std::span<const float> biases) { std::copy(biases.begin(), biases.end(), biases_.begin()); }

void Classifier::set_row(std::uint32_t bucket, std::span<const float> weights) {
    std::transform(weights.begin(), weights.end(), &weights_[bucket * stride_], to_bf16);
}

Classifier::Guess Classifier::classify(std::string_view text) const {
    thread_local std::vector<std::uint32_t> features;
    hash_features(text, bits_, features);
    std::shared_lock lock(*learning_);
    const std::vector<double> all = logits(features);
    const auto best = std::max_element(all.begin(), all.end());
    // Its probability alone. What cannot change the sum is not worth an exponential: most labels of a clear text.
    double sum = 0;
    for (const double logit : all)
        if (const double below = (logit - *best) / temperature_; below > -40) sum += std::exp(below);
    return {static_cast<std::size_t>(best - all.begin()), 1 / sum};
}

void Classifier::learn(std::string_view text, const std::string& label) {
    const auto found = std::find(labels_.begin(), labels_.end(), label);
    if (found == labels_.end()) return;
    thread_local std::vector<std::uint32_t> features;
    hash_features(text, bits_, features);
    if (features.empty()) return;
    std::unique_lock lock(*learning_);
    std::vector<double> gradient = probabilities(logits(features), temperature_);
    gradient[static_cast<std::size_t>(found - labels_.begin())] -= 1;
    const double rate = kLearnedRate / std::sqrt(static_cast<double>(features.size()));
    std::vector<float> steps;
    for (std::size_t i = 0; i < biases_.size(); ++i) {
        biases_[i] = bounded(biases_[i] - static_cast<float>(kLearnedRate * gradient[i]));
        steps.push_back(static_cast<float>(rate * gradient[i]));
    }
    // The same requests in the same order give the same weights: the noise counts on from the updates.
    std::uint64_t noise = (*updates_ + 1) * kMix;
    for (const std::uint32_t bucket : features) {
        std::uint16_t* row = &weights_[bucket * stride_];
        for (std::size_t i = 0; i < steps.size(); ++i) {
            noise = noise * 6364136223846793005ull + 1442695040888963407ull;
            row[i] = to_bf16_by_chance(bounded(from_bf16(row[i]) - steps[i]), static_cast<std::uint32_t>(noise >> 48));
        }
    }
    ++*updates_;
}

void Classifier::set_calibration(double temperature, double threshold) {
    // As the file holds them, so that what was measured is what will be served.
    temperature_ = static_cast<float>(temperature);
    threshold_ = static_cast<float>(threshold);
}

std::string Classifier::file_bytes() const {
    std::shared_lock lock(*learning_);
    std::string out(kMagic);
    put(out, kVersion);
    put(out, static_cast<std::uint32_t>(bits_));
    put(out, static_cast<std::uint32_t>(labels_.size()));
    put(out, static_cast<float>(temperature_));
    put(out, static_cast<float>(threshold_));
    for (const std::string& label : labels_) {
        put(out, static_cast<std::uint32_t>(label.size()));
        out += label;
    }
    for (const float bias : biases_) put(out, bias);
    for (std::size_t bucket = 0; bucket < buckets(); ++bucket)
        for (std::size_t label = 0; label < labels_.size(); ++label) put(out, weights_[bucket * stride_ + label]);
    put(out, fnv(out));
    return out;
}

Result<Classifier> Classifier::parse(std::string_view bytes, const std::string& name) {
    const auto refuse = [&](const std::string& why) {
        return make_error(Errc::invalid_argument, name + ": no classifier of attune train-router: " + why);
    };
    Reader in{bytes};
    std::string magic;
    if (!in.take(magic, kMagic.size()) || magic != kMagic) return refuse("its first bytes are not \"attnrout\"");
    std::uint32_t version = 0, bits = 0, count = 0;
    float temperature = 0, threshold = 0;
    if (!in.take(version) || version != kVersion) return refuse("its version is not 1");
    if (!in.take(bits) || bits < kLeastBits || bits > kMostBits) return refuse("its number of buckets is not offered");
    if (!in.take(count) || count < 2 || count > kLabels || (std::size_t{count} << bits) > kWeights)
        return refuse("its number of labels is not offered");
    if (!in.take(temperature) || !(temperature >= 0.01f && temperature <= 100.0f))
        return refuse("its temperature is off");
    if (!in.take(threshold) || !(threshold >= 0.0f && threshold <= 1.0f)) return refuse("its threshold is off");
    std::vector<std::string> labels;
    std::set<std::string> seen;
    for (std::uint32_t i = 0; i < count; ++i) {
        std::uint32_t length = 0;
        std::string label;
        if (!in.take(length) || length > kLabelBytes || !in.take(label, length) || !is_valid_utf8(label))
            return refuse("a label cannot be read");
        if (!seen.insert(label).second) return refuse("label \"" + label + "\" is there twice");
        labels.push_back(std::move(label));
    }
    const std::size_t weights = std::size_t{count} << bits;
    if (in.bytes.size() != count * sizeof(float) + weights * sizeof(std::uint16_t) + sizeof(std::uint64_t))
        return refuse("it has " + std::to_string(bytes.size()) + " bytes, which its header does not say");
    std::uint64_t sum = 0;
    Reader end{bytes.substr(bytes.size() - sizeof sum)};
    if (!end.take(sum) || sum != fnv(bytes.substr(0, bytes.size() - sizeof sum))) return refuse("its checksum is off");
    Classifier out(std::move(labels), static_cast<int>(bits));
    out.temperature_ = temperature;
    out.threshold_ = threshold;
    out.checksum_ = sum;
    for (float& bias : out.biases_)
        if (!in.take(bias) || !std::isfinite(bias)) return refuse("a bias is not finite");
    for (std::size_t bucket = 0; bucket < out.buckets(); ++bucket)
        for (std::size_t label = 0; label < count; ++label) {
            std::uint16_t& weight = out.weights_[bucket * out.stride_ + label];
            if (!in.take(weight) || !std::isfinite(from_bf16(weight))) return refuse("a weight is not finite");
        }
    return out;
}

Result<Classifier> Classifier::open(const std::filesystem::path& file) {
    const std::string name = file.filename().string();
    constexpr std::size_t kFileBytes = 2 * kWeights + (1u << 20);
    std::error_code failed;
    if (!std::filesystem::is_regular_file(file, failed))
        return make_error(Errc::invalid_argument, name + ": no such file");
    std::ifstream in(file, std::ios::binary);
    std::string bytes;
    char block[1 << 16];
    while (in.read(block, sizeof block) || in.gcount() > 0) {
        bytes.append(block, static_cast<std::size_t>(in.gcount()));
        if (bytes.size() > kFileBytes) return make_error(Errc::invalid_argument, name + ": too large for a classifier");
    }
    if (in.bad()) return make_error(Errc::io, name + ": reading failed");
    return parse(bytes, name);
}

}  // namespace attune
