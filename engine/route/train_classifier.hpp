#pragma once

#include "attune/result.hpp"
#include "engine/route/classifier.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace attune {

struct LabelledText {
    std::string text;
    std::string module;  ///< empty: the plain base
};

struct TrainOptions {
    int bits = 16;  ///< log2 of the buckets
    int epochs = 5;
    std::uint64_t seed = 1;
    double threshold = 0.5;
};

/// What a classifier is worth on texts it never saw: neither its weights nor its temperature come from them.
struct TrainReport {
    std::size_t trained = 0, calibrated = 0, held_out = 0;  ///< texts
    double accuracy = 0;                                    ///< of the held-out texts
    double calibration_error = 0;                           ///< ECE over ten bins, after calibration
    double calibration_error_before = 0;
    double log_loss = 0;  ///< mean negative log-likelihood, after calibration
    double log_loss_before = 0;
    double decided = 0;           ///< share of the held-out texts at or above the threshold
    double accuracy_decided = 0;  ///< of those
};

struct TrainedClassifier {
    Classifier classifier;
    TrainReport report;
};

/// The same texts and options give the same bytes. Of each label's texts, shuffled by the seed, every tenth is held out
/// and every tenth sets the temperature. Errors name the label that has fewer than ten texts, or the limit.
Result<TrainedClassifier> train_classifier(const std::vector<LabelledText>& texts, const TrainOptions& options);

}  // namespace attune
