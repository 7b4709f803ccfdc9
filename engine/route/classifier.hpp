#pragma once

#include "attune/result.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <shared_mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attune {

/// Guesses which module a text wants: multinomial logistic regression over hashed words, pairs of words and runs of 3
/// to 5 characters of the comparable text. Made by train_classifier(), kept in one file, and corrected by single steps
/// while it serves, if told to. Any thread.
///
/// The file, little endian: "attnrout", version 1 (u32), log2 of the buckets (u32), labels (u32), temperature (f32),
/// threshold (f32), each label as length (u32) and bytes, one bias per label (f32), one row of labels per bucket
/// (bfloat16), and FNV-1a of all before (u64).
class Classifier {
public:
    static constexpr std::size_t kScannedBytes = 4u << 10;  ///< of a text, from its beginning
    static constexpr int kLeastBits = 10, kMostBits = 18;   ///< log2 of the buckets
    static constexpr std::size_t kLabels = 256;
    static constexpr std::size_t kWeights = 1u << 24;  ///< buckets times labels

    struct Guess {
        std::size_t label = 0;
        double probability = 0;
    };

    /// All weights 0. `labels` are distinct module names, "" is the plain base; checked sizes are the caller's duty.
    Classifier(std::vector<std::string> labels, int bits);
    Classifier(Classifier&&) noexcept = default;

    /// Errors name the file, never its folder.
    static Result<Classifier> open(const std::filesystem::path& file);
    static Result<Classifier> parse(std::string_view bytes, const std::string& name);
    std::string file_bytes() const;

    const std::vector<std::string>& labels() const { return labels_; }
    double threshold() const { return threshold_; }
    double temperature() const { return temperature_; }
    std::uint64_t updates() const { return *updates_; }
    /// Of the file it was read from, which tells whether another reading gave the same; 0: from none.
    std::uint64_t checksum() const { return checksum_; }
    std::size_t buckets() const { return std::size_t{1} << bits_; }

    /// Of a comparable text (route_text.hpp).
    Guess classify(std::string_view text) const;
    /// One step towards `label`. Steps are small and weights bounded, so that no
    /// run of requests turns it over at once. Unknown labels are ignored.
    void learn(std::string_view text, const std::string& label);

    // For training: one thread, nobody else looks.
    std::vector<double> logits(std::span<const std::uint32_t> features) const;
    void set_biases(std::span<const float> biases);
    /// One weight per label, rounded to what the file holds.
    void set_row(std::uint32_t bucket, std::span<const float> weights);
    void set_calibration(double temperature, double threshold);

private:
    std::vector<std::string> labels_;
    int bits_ = 0;
    std::uint64_t checksum_ = 0;
    std::size_t stride_ = 0;  ///< weights of a row: the labels, and zeros up to whole vectors
    double temperature_ = 1;
    double threshold_ = 0.5;
    std::vector<float> biases_;
    std::vector<std::uint16_t>
        weights_;  ///< [buckets, stride], bfloat16 as in the file: a guess is bound by reading them
    // Behind pointers, so that a classifier can be moved before it is shared.
    std::unique_ptr<std::shared_mutex> learning_ = std::make_unique<std::shared_mutex>();
    std::unique_ptr<std::atomic<std::uint64_t>> updates_ = std::make_unique<std::atomic<std::uint64_t>>(0);
};

/// The buckets of a comparable text's features, one entry for each occurrence, of its first kScannedBytes.
void hash_features(std::string_view text, int bits, std::vector<std::uint32_t>& out);

/// biases + sums / sqrt(features), so that texts of any length weigh the same; `sums` has a sum per label first.
std::vector<double> scaled_logits(std::span<const float> biases, std::span<const float> sums, std::size_t features);

/// Whatever was learned, a guess stays finite.
inline float bounded(float weight) { return std::clamp(weight, -64.0f, 64.0f); }

/// Softmax of logits / temperature.
std::vector<double> probabilities(std::span<const double> logits, double temperature);

}  // namespace attune
