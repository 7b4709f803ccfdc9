#include "cli/commands.hpp"
#include "cli/options.hpp"
#include "engine/route/route_text.hpp"
#include "engine/route/train_classifier.hpp"

#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

namespace attune::cli {
namespace {

using nlohmann::json;

constexpr std::size_t kLineBytes = 16u << 20;
constexpr std::size_t kTexts = 2'000'000;

struct TrainRouterOptions {
    std::string data;
    std::string out;
    TrainOptions training;
};

Error wrong(const std::string& what) { return make_error(Errc::invalid_argument, what); }

/// One {"text": .., "module": ..} a line; only what the classifier looks at is kept of a text.
Result<std::vector<LabelledText>> read_texts(const std::string& path) {
    const std::string name = std::filesystem::path(path).filename().string();
    std::ifstream in(path, std::ios::binary);
    if (!in) return wrong(name + ": cannot be opened for reading");
    std::vector<LabelledText> texts;
    std::string line;
    for (std::size_t number = 1; std::getline(in, line); ++number) {
        const std::string where = name + ", line " + std::to_string(number) + ": ";
        if (line.size() > kLineBytes) return wrong(where + "longer than " + std::to_string(kLineBytes) + " bytes");
        if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
        const json object = json::parse(line, nullptr, /*allow_exceptions=*/false);
        const auto is_text = [&](const char* key) { return object.contains(key) && object[key].is_string(); };
        if (!object.is_object() || !is_text("text") || !is_text("module"))
            return wrong(where + R"(must be an object with the texts "text" and "module" ("" is the plain base))");
        LabelledText one{object["text"].get<std::string>(), object["module"].get<std::string>()};
        if (one.module.size() > 512 || one.module == "auto") return wrong(where + "\"module\" is not a module's name");
        one.text = beginning_of(one.text, Classifier::kScannedBytes);
        if (texts.size() == kTexts) return wrong(where + "more than " + std::to_string(kTexts) + " texts");
        texts.push_back(std::move(one));
    }
    if (in.bad()) return make_error(Errc::io, name + ": reading failed");
    return texts;
}

/// Under another name first: a server that watches the file sees the old one or the new one.
Result<void> write_file(const std::string& path, const std::string& bytes) {
    const std::string unfinished = path + ".unfinished";
    std::ofstream out(unfinished, std::ios::binary | std::ios::trunc);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    out.close();
    std::error_code failed;
    if (out) std::filesystem::rename(unfinished, path, failed);
    if (out && !failed) return {};
    std::filesystem::remove(unfinished, failed);
    return make_error(Errc::io, std::filesystem::path(path).filename().string() + ": cannot be written");
}

double microseconds_per_guess(const Classifier& classifier, const std::vector<LabelledText>& texts) {
    const std::size_t count = std::min<std::size_t>(texts.size(), 2000);
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < count; ++i) classifier.classify(comparable(texts[i].text));
    const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - begin;
    return spent.count() / static_cast<double>(count);
}

int train(const TrainRouterOptions& options) {
    const auto texts = read_texts(options.data);
    if (!texts) return report("train-router", texts.error());
    const auto trained = train_classifier(*texts, options.training);
    if (!trained) return report("train-router", trained.error());
    const std::string bytes = trained->classifier.file_bytes();
    if (auto written = write_file(options.out, bytes); !written) return report("train-router", written.error());
    const TrainReport& told = trained->report;
    std::printf("%zu modules, %zu texts: %zu trained, %zu set the temperature, %zu held out\n",
                trained->classifier.labels().size(), texts->size(), told.trained, told.calibrated, told.held_out);
    std::printf("held out: accuracy %.4f; calibration error (ECE) %.4f, %.4f before calibration; temperature %.3f\n",
                told.accuracy, told.calibration_error, told.calibration_error_before,
                trained->classifier.temperature());
    std::printf("at threshold %.2f: %.4f of the texts are decided, %.4f of those rightly\n",
                trained->classifier.threshold(), told.decided, told.accuracy_decided);
    std::printf("speed: %.1f microseconds a text; %zu bytes written\n",
                microseconds_per_guess(trained->classifier, *texts), bytes.size());
    return kDone;
}

}  // namespace

void add_train_router(CLI::App& app, Run& run) {
    CLI::App* command = app.add_subcommand("train-router", "Train the classifier that routes what no rule matches");
    auto options = std::make_shared<TrainRouterOptions>();
    command->add_option("--data", options->data, R"(Lines of {"text": "...", "module": "..."}; "" is the plain base)")
        ->type_name("FILE")
        ->required();
    command->add_option("--out", options->out, "Classifier file to write, for [classifier] in routes.toml")
        ->type_name("FILE")
        ->required();
    command
        ->add_option("--threshold", options->training.threshold,
                     "Probability below which the default decides (default 0.5); routes.toml may say another")
        ->type_name("P")
        ->check(CLI::Range(0.0, 1.0));
    command->add_option("--bits", options->training.bits, "Log2 of the hash buckets (default 16)")
        ->type_name("N")
        ->check(CLI::Range(Classifier::kLeastBits, Classifier::kMostBits));
    command->add_option("--epochs", options->training.epochs, "Passes over the texts (default 5)")
        ->type_name("N")
        ->check(CLI::Range(1, 1000));
    command->add_option("--seed", options->training.seed, "Seed of shuffles and splits (default 1)")->type_name("N");
    command->callback([&run, options] { run = [options] { return train(*options); }; });
}

}  // namespace attune::cli
