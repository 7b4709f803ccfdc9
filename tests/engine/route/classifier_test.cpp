#include "engine/route/route_table.hpp"
#include "engine/route/route_text.hpp"
#include "engine/route/train_classifier.hpp"
#include "support/temporary_folder.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

using namespace attune;
using Catch::Matchers::Contains;

namespace {

/// Texts of three kinds, each written with words of its own and some of everybody's.
std::vector<LabelledText> some_texts(std::size_t each = 60) {
    const std::array<std::pair<const char*, std::vector<const char*>>, 3> kinds{{
        {"code", {"function", "compile", "python", "segfault", "loop", "代码", "变量"}},
        {"law", {"clause", "liability", "statute", "court", "tenant", "合同", "法院"}},
        {"", {"weather", "dinner", "holiday", "garden", "music", "天气", "晚饭"}},
    }};
    const std::array<const char*, 5> common{"please", "tell me", "about", "the", "今天"};
    std::vector<LabelledText> texts;
    for (std::size_t i = 0; i < each; ++i)
        for (const auto& [module, words] : kinds) {
            std::string text = common[i % common.size()];
            text += std::string(" ") + words[i % words.size()] + " " + common[(i + 2) % common.size()] + " " +
                    words[(i * 3 + 1) % words.size()] + " " + std::to_string(i);
            texts.push_back({text, module});
        }
    return texts;
}

TrainedClassifier trained(TrainOptions options = {}) {
    options.bits = 12;
    auto made = train_classifier(some_texts(), options);
    REQUIRE(made);
    return std::move(*made);
}

std::string label_for(const Classifier& classifier, const std::string& text) {
    return classifier.labels()[classifier.classify(comparable(text)).label];
}

std::string with_bytes(std::string file, std::size_t at, std::uint32_t value) {
    std::memcpy(file.data() + at, &value, sizeof value);
    return file;
}

std::string refusal(const std::string& bytes) {
    const auto parsed = Classifier::parse(bytes, "router.bin");
    REQUIRE_FALSE(parsed);
    CHECK(parsed.error().code == Errc::invalid_argument);
    CHECK_THAT(parsed.error().message, Contains("router.bin: no classifier"));
    return parsed.error().message;
}

}  // namespace

TEST_CASE("a classifier tells texts apart that it never saw", "[engine][route][classifier]") {
    const TrainedClassifier made = trained();
    CHECK(made.report.trained == 144);
    CHECK(made.report.calibrated == 18);
    CHECK(made.report.held_out == 18);
    CHECK(made.report.accuracy > 0.95);
    CHECK(made.report.calibration_error < 0.1);
    CHECK(label_for(made.classifier, "my PYTHON function does not compile") == "code");
    CHECK(label_for(made.classifier, "is the tenant in court over a clause") == "law");
    CHECK(label_for(made.classifier, "music in the garden").empty());
    CHECK(label_for(made.classifier, "这份合同在法院") == "law");
}

TEST_CASE("training gives the same bytes for the same texts and seed", "[engine][route][classifier]") {
    CHECK(trained().classifier.file_bytes() == trained().classifier.file_bytes());
    TrainOptions other;
    other.seed = 2;
    CHECK(trained().classifier.file_bytes() != trained(other).classifier.file_bytes());
}

TEST_CASE("a classifier's file gives back what was trained, bit for bit", "[engine][route][classifier]") {
    const TrainedClassifier made = trained();
    const std::string bytes = made.classifier.file_bytes();
    TemporaryFolder folder;
    const auto read = Classifier::open(folder.write("router.bin", bytes));
    REQUIRE(read);
    CHECK(read->file_bytes() == bytes);
    CHECK(read->labels() == std::vector<std::string>{"", "code", "law"});
    CHECK(read->threshold() == 0.5);
    for (const auto& one : some_texts(5)) {
        const auto before = made.classifier.classify(comparable(one.text));
        const auto after = read->classify(comparable(one.text));
        CHECK(before.label == after.label);
        CHECK(before.probability == after.probability);
    }
    CHECK_THAT(Classifier::open(folder.path() / "nowhere").error().message, Contains("nowhere: no such file"));
}

TEST_CASE("a bad classifier file is refused with its reason", "[engine][route][classifier]") {
    const std::string good = trained().classifier.file_bytes();
    REQUIRE(Classifier::parse(good, "x"));
    CHECK_THAT(refusal(""), Contains("attnrout"));
    CHECK_THAT(refusal("attnrouX" + good.substr(8)), Contains("attnrout"));
    CHECK_THAT(refusal(with_bytes(good, 8, 2)), Contains("version"));
    CHECK_THAT(refusal(with_bytes(good, 12, 30)), Contains("buckets"));
    CHECK_THAT(refusal(with_bytes(good, 16, 1)), Contains("labels"));
    CHECK_THAT(refusal(with_bytes(good, 16, 0xFFFFFFFF)), Contains("labels"));
    CHECK_THAT(refusal(with_bytes(good, 20, 0x7FC00000)), Contains("temperature"));
    CHECK_THAT(refusal(with_bytes(good, 24, 0x40000000)), Contains("threshold"));
    CHECK_THAT(refusal(with_bytes(good, 28, 0x7FFFFFFF)), Contains("label"));
    CHECK_THAT(refusal(good.substr(0, good.size() - 1)), Contains("bytes"));
    CHECK_THAT(refusal(good + "x"), Contains("bytes"));
    std::string flipped = good;
    flipped[good.size() / 2] ^= 1;
    CHECK_THAT(refusal(flipped), Contains("checksum"));
    for (std::size_t size = 0; size < 200; ++size) CHECK_FALSE(Classifier::parse(good.substr(0, size), "x"));
}

TEST_CASE("training says what is wrong with its texts", "[engine][route][classifier]") {
    const auto why = [](std::vector<LabelledText> texts) { return train_classifier(texts, {}).error().message; };
    CHECK_THAT(why({}), Contains("fewer than two modules"));
    std::vector<LabelledText> few = some_texts(10);
    few.push_back({"one of its kind", "rare"});
    CHECK_THAT(why(few), Contains("module \"rare\" has 1 texts, at least 10"));
    TrainOptions wrong;
    wrong.bits = 40;
    CHECK_FALSE(train_classifier(some_texts(), wrong));
}

TEST_CASE("calibration brings probabilities towards what comes true", "[engine][route][classifier]") {
    // About every fourth text carries a wrong label: nobody can be right more often than three times in four.
    std::vector<LabelledText> texts = some_texts(400);
    for (std::size_t i = 0; i < texts.size(); ++i)
        if (i * 2654435761u % 4096 < 1024) texts[i].module = texts[i].module == "code" ? "law" : "code";
    TrainOptions options;
    options.bits = 14;
    const auto made = train_classifier(texts, options);
    REQUIRE(made);
    CHECK(made->classifier.temperature() > 1);
    CHECK(made->report.log_loss < made->report.log_loss_before);
    CHECK(made->report.accuracy > 0.6);
    CHECK(made->report.calibration_error < 0.15);
}

TEST_CASE("a classifier learns from choices by small steps, and ignores names it does not know",
          "[engine][route][classifier]") {
    Classifier classifier = trained().classifier;
    const std::string text = comparable("kubernetes pods are evicted");
    const auto chance_of_code = [&] {
        const auto guess = classifier.classify(text);
        return classifier.labels()[guess.label] == "code" ? guess.probability : 0.0;
    };
    const double before = chance_of_code();
    classifier.learn(text, "nobody");
    CHECK(classifier.updates() == 0);
    classifier.learn(text, "code");
    CHECK(classifier.updates() == 1);
    for (int i = 0; i < 200; ++i) classifier.learn(text, "code");
    CHECK(chance_of_code() > std::max(before, 0.8));
    CHECK(label_for(classifier, "is the tenant in court over a clause") == "law");
    for (int i = 0; i < 5000; ++i) classifier.learn(text, i % 2 == 0 ? "code" : "law");
    CHECK(std::isfinite(classifier.classify(text).probability));
}

TEST_CASE("steps smaller than a stored weight tells apart still move it, and the same way each time",
          "[engine][route][classifier]") {
    std::string text;
    for (int i = 0; i < 400; ++i) text += std::to_string(i * 7919) + " ";
    std::vector<std::uint32_t> features;
    hash_features(text, 12, features);
    const auto learned = [&] {
        Classifier classifier({"a", "b"}, 12);
        // At 32 two neighbouring weights are 0.25 apart; a step here moves one by less than 0.002.
        for (std::uint32_t bucket = 0; bucket < classifier.buckets(); ++bucket)
            classifier.set_row(bucket, std::vector<float>{32, 32});
        for (int i = 0; i < 40; ++i) classifier.learn(text, "a");
        return classifier;
    };
    const Classifier classifier = learned();
    const auto logits = classifier.logits(features);
    const auto biases = classifier.logits({});
    CHECK((logits[0] - biases[0]) - (logits[1] - biases[1]) > 1);
    CHECK(classifier.file_bytes() == learned().file_bytes());
}

TEST_CASE("the classifier decides what no rule matches, at or above the threshold", "[engine][route][classifier]") {
    TemporaryFolder folder;
    RouteFile file;
    RouteRule rule;
    rule.modules = {{"special", 1.0}};
    rule.keywords = {"tenant"};
    file.rules = {rule};
    file.default_modules = {{"standard", 1.0}};
    file.classifier = ClassifierChoice{folder.path() / "router.bin", std::nullopt, false};
    CHECK_THAT(compile_routes(file).error().message, Contains("router.bin: no such file"));
    folder.write("router.bin", trained().classifier.file_bytes());
    const auto choose = [&](const std::string& text, std::optional<double> threshold = std::nullopt) {
        file.classifier->threshold = threshold;
        auto compiled = compile_routes(file);
        REQUIRE(compiled);
        RouteQuery query;
        query.text = text;
        return RouteTable(file, std::move(*compiled)).choose(query);
    };
    const RouteChoice code = choose("compile the python function loop");
    CHECK(code.decision.rule == "classifier");
    CHECK(code.decision.modules == std::vector<std::string>{"code"});
    CHECK(code.decision.score >= 0.5);
    CHECK(choose("the tenant must compile python").decision.rule == "keyword");
    // A text of two kinds is no sure thing.
    const double score = choose("a python in court", 0.0).decision.score;
    REQUIRE(score > 0);
    REQUIRE(score < 1);
    CHECK(choose("a python in court", (1 + score) / 2).decision.modules == std::vector<std::string>{"standard"});
    const RouteChoice base = choose("music in the garden");
    CHECK(base.decision.rule == "classifier");
    CHECK(base.modules.empty());  // "" is the plain base
    CHECK(choose("").decision.rule == "default");
}

TEST_CASE("only the beginning of a long text is looked at", "[engine][route][classifier]") {
    std::vector<std::uint32_t> all;
    std::vector<std::uint32_t> beginning;
    std::string text;
    while (text.size() < 3 * Classifier::kScannedBytes) text += "法条 and code ";
    hash_features(text, 12, all);
    hash_features(beginning_of(text, Classifier::kScannedBytes), 12, beginning);
    CHECK(all == beginning);
    CHECK(all.size() < 5 * Classifier::kScannedBytes);
}
