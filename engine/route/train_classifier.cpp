#include "engine/route/train_classifier.hpp"

#include "engine/route/route_text.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

namespace attune {
namespace {

constexpr std::size_t kLeastTexts = 10;  ///< of a label
constexpr std::size_t kLane = 8;         ///< labels summed at a time

/// SplitMix64: std::shuffle and the standard's distributions differ between libraries.
struct Random {
    std::uint64_t state;

    std::uint64_t next() {
        state += 0x9E3779B97F4A7C15ull;
        std::uint64_t z = state;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
        return z ^ (z >> 31);
    }
    void shuffle(std::vector<std::size_t>& list) {
        for (std::size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[next() % i]);
    }
};

struct Scored {
    std::vector<double> logits;
    std::size_t label = 0;
};

struct Split {
    std::vector<std::size_t> train, calibrate, held_out;
};

double negative_log_likelihood(const std::vector<Scored>& scored, double temperature) {
    double sum = 0;
    for (const Scored& one : scored)
        sum -= std::log(std::max(probabilities(one.logits, temperature)[one.label], 1e-300));
    return sum;
}

/// Golden-section search for the temperature under which the calibration texts are most likely.
double best_temperature(const std::vector<Scored>& scored) {
    const double ratio = (std::sqrt(5.0) - 1) / 2;
    double low = std::log(0.05), high = std::log(20.0);
    for (int i = 0; i < 60; ++i) {
        const double left = high - ratio * (high - low);
        const double right = low + ratio * (high - low);
        if (negative_log_likelihood(scored, std::exp(left)) < negative_log_likelihood(scored, std::exp(right)))
            high = right;
        else
            low = left;
    }
    return std::exp((low + high) / 2);
}

/// Expected calibration error: how far the probability of the best label is from its being right, over ten bins.
double calibration_error(const std::vector<Scored>& scored, double temperature) {
    struct Bin {
        double probability = 0, right = 0, count = 0;
    };
    std::array<Bin, 10> bins{};
    for (const Scored& one : scored) {
        const auto chances = probabilities(one.logits, temperature);
        const auto best = std::max_element(chances.begin(), chances.end());
        Bin& bin = bins[std::min<std::size_t>(9, static_cast<std::size_t>(*best * 10))];
        bin.probability += *best;
        bin.right += static_cast<std::size_t>(best - chances.begin()) == one.label;
        ++bin.count;
    }
    double error = 0;
    for (const Bin& bin : bins) error += std::abs(bin.probability - bin.right);
    return error / static_cast<double>(scored.size());
}

class Trainer {
public:
    Trainer(const std::vector<LabelledText>& texts, const TrainOptions& options, std::vector<std::string> labels)
        : texts_(texts),
          options_(options),
          random_{options.seed},
          classifier_(std::move(labels), options.bits),
          stride_((classifier_.labels().size() + kLane - 1) / kLane * kLane),
          biases_(classifier_.labels().size()),
          weights_(stride_ << options.bits) {}

    TrainedClassifier train() {
        split();
        fit();
        // What is calibrated and measured is what will be served.
        const std::size_t labels = classifier_.labels().size();
        classifier_.set_biases(biases_);
        for (std::uint32_t bucket = 0; bucket < classifier_.buckets(); ++bucket)
            classifier_.set_row(bucket, {&weights_[bucket * stride_], labels});
        const auto calibrate = scores_of(split_.calibrate);
        const double temperature = best_temperature(calibrate);
        classifier_.set_calibration(temperature, options_.threshold);
        TrainReport report = measure();
        return {std::move(classifier_), report};
    }

private:
    void split() {
        std::map<std::string, std::vector<std::size_t>> by_label;
        for (std::size_t i = 0; i < texts_.size(); ++i) by_label[texts_[i].module].push_back(i);
        for (auto& [label, list] : by_label) {
            random_.shuffle(list);
            for (std::size_t i = 0; i < list.size(); ++i)
                (i % 10 == 0 ? split_.held_out : i % 10 == 5 ? split_.calibrate : split_.train).push_back(list[i]);
        }
    }

    std::size_t label_of(std::size_t text) const {
        const auto& labels = classifier_.labels();
        return static_cast<std::size_t>(std::lower_bound(labels.begin(), labels.end(), texts_[text].module) -
                                        labels.begin());
    }

    const std::vector<std::uint32_t>& features_of(std::size_t text) {
        hash_features(comparable(beginning_of(texts_[text].text, Classifier::kScannedBytes)), options_.bits, features_);
        return features_;
    }

    /// As a guess sums them, but of float32: a training step is smaller than a bfloat16 tells apart.
    std::vector<double> logits(const std::vector<std::uint32_t>& features) const {
        std::vector<float> sums(stride_);
        // A few labels at a time, so that their sums stay in registers over all features.
        for (std::size_t lane = 0; lane < stride_; lane += kLane) {
            std::array<float, kLane> sum{};
            for (const std::uint32_t bucket : features) {
                const float* row = &weights_[bucket * stride_ + lane];
                for (std::size_t i = 0; i < kLane; ++i) sum[i] += row[i];
            }
            std::copy(sum.begin(), sum.end(), sums.begin() + static_cast<std::ptrdiff_t>(lane));
        }
        return scaled_logits(biases_, sums, features.size());
    }

    static void step(float* values, const std::vector<double>& gradient, double rate) {
        for (std::size_t label = 0; label < gradient.size(); ++label)
            values[label] = bounded(values[label] - static_cast<float>(rate * gradient[label]));
    }

    /// AdaGrad with one sum of squares per bucket: frequent features settle early, rare ones still move.
    void fit() {
        constexpr double kRate = 0.5;
        std::vector<float> squares(classifier_.buckets());
        for (int epoch = 0; epoch < options_.epochs; ++epoch) {
            random_.shuffle(split_.train);
            for (const std::size_t text : split_.train) {
                const auto& features = features_of(text);
                if (features.empty()) continue;
                std::vector<double> gradient = probabilities(logits(features), 1);
                gradient[label_of(text)] -= 1;
                double square = 0;
                for (const double one : gradient) square += one * one;
                const auto share = static_cast<float>(square / static_cast<double>(features.size()));
                step(biases_.data(), gradient, 0.01);
                for (const std::uint32_t bucket : features) {
                    squares[bucket] += share;
                    const double rate = kRate / std::sqrt(1e-6 + squares[bucket]);
                    step(&weights_[bucket * stride_], gradient, rate / std::sqrt(static_cast<double>(features.size())));
                }
            }
        }
    }

    std::vector<Scored> scores_of(const std::vector<std::size_t>& texts) {
        std::vector<Scored> out;
        for (const std::size_t text : texts) out.push_back({classifier_.logits(features_of(text)), label_of(text)});
        return out;
    }

    TrainReport measure() {
        const auto scored = scores_of(split_.held_out);
        TrainReport report;
        report.trained = split_.train.size();
        report.calibrated = split_.calibrate.size();
        report.held_out = scored.size();
        report.calibration_error_before = calibration_error(scored, 1);
        report.calibration_error = calibration_error(scored, classifier_.temperature());
        const auto texts = static_cast<double>(scored.size());
        report.log_loss_before = negative_log_likelihood(scored, 1) / texts;
        report.log_loss = negative_log_likelihood(scored, classifier_.temperature()) / texts;
        std::size_t right = 0, decided = 0, right_decided = 0;
        for (const Scored& one : scored) {
            const auto chances = probabilities(one.logits, classifier_.temperature());
            const auto best = std::max_element(chances.begin(), chances.end());
            const bool is_right = static_cast<std::size_t>(best - chances.begin()) == one.label;
            right += is_right;
            if (*best < classifier_.threshold()) continue;
            ++decided;
            right_decided += is_right;
        }
        const auto share = [](std::size_t part, std::size_t whole) {
            return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
        };
        report.accuracy = share(right, scored.size());
        report.decided = share(decided, scored.size());
        report.accuracy_decided = share(right_decided, decided);
        return report;
    }

    const std::vector<LabelledText>& texts_;
    const TrainOptions& options_;
    Random random_;
    Classifier classifier_;
    std::size_t stride_;  ///< floats of a row: the labels, and zeros up to whole lanes
    std::vector<float> biases_;
    std::vector<float> weights_;  ///< [buckets, stride]
    Split split_;
    std::vector<std::uint32_t> features_;
};

}  // namespace

Result<TrainedClassifier> train_classifier(const std::vector<LabelledText>& texts, const TrainOptions& options) {
    std::map<std::string, std::size_t> counts;
    for (const LabelledText& one : texts) ++counts[one.module];
    const auto refuse = [](std::string why) { return make_error(Errc::invalid_argument, std::move(why)); };
    if (counts.size() < 2) return refuse("the texts name fewer than two modules: there is nothing to tell apart");
    if (counts.size() > Classifier::kLabels)
        return refuse("the texts name more than " + std::to_string(Classifier::kLabels) + " modules");
    if (options.bits < Classifier::kLeastBits || options.bits > Classifier::kMostBits ||
        (counts.size() << options.bits) > Classifier::kWeights)
        return refuse("so many buckets are not offered for " + std::to_string(counts.size()) + " modules");
    std::vector<std::string> labels;
    for (const auto& [label, count] : counts) {
        if (count < kLeastTexts)
            return refuse("module \"" + label + "\" has " + std::to_string(count) + " texts, at least " +
                          std::to_string(kLeastTexts) + " are needed");
        labels.push_back(label);
    }
    return Trainer(texts, options, std::move(labels)).train();
}

}  // namespace attune
