// The routing classifier beside the tokenizer on the same texts, one thread: a request that is routed by it should not
// wait longer for that than for its tokens. Prints one JSON line; ratio = classify / encode, below 1 is faster.
// usage: route_bench FOLDER [LABELS] [FILE...]   FOLDER holds tokenizer.json; the beginning of each FILE is one more
// text
#include "engine/route/classifier.hpp"
#include "engine/route/route_text.hpp"
#include "engine/text/tokenizer.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace {

using nlohmann::json;

constexpr std::size_t kLongest = 32000;

double cpu_seconds() {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

struct Compared {
    double first_us = 0, second_us = 0, ratio = 0;
};

/// Medians over rounds, in microseconds a call; the two take turns, so that what disturbs one disturbs both.
Compared compare(const std::function<void()>& first, const std::function<void()>& second, int calls) {
    const auto microseconds = [calls](const std::function<void()>& work) {
        const double begin = cpu_seconds();
        for (int i = 0; i < calls; ++i) work();
        return (cpu_seconds() - begin) * 1e6 / calls;
    };
    std::vector<double> firsts, seconds, ratios;
    for (int round = 0; round < 9; ++round) {
        firsts.push_back(microseconds(first));
        seconds.push_back(microseconds(second));
        ratios.push_back(firsts.back() / seconds.back());
    }
    return {median(firsts), median(seconds), median(ratios)};
}

std::string of_length(const std::string& piece, std::size_t bytes) {
    std::string text;
    for (int i = 0; text.size() < bytes; ++i) text += piece + std::to_string(i) + " ";
    return std::string(attune::beginning_of(text, bytes));
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        std::cerr << "usage: route_bench FOLDER [LABELS] [FILE...]\n";
        return 2;
    }
    auto tokenizer = attune::Tokenizer::open(argv[1]);
    if (!tokenizer) {
        std::cerr << tokenizer.error().message << "\n";
        return 1;
    }
    const int count = std::clamp(argc > 2 ? std::atoi(argv[2]) : 8, 2, 256);
    std::vector<std::string> labels;
    for (int i = 0; i < count; ++i) labels.push_back("module-" + std::to_string(i));
    const attune::Classifier classifier(labels, 16);

    const std::string english = "Please explain how the committee reached its decision on the new regulation, item ";
    const std::string code = "for (int i = 0; i < count; ++i) total += values[i] * weights[i];  // step ";
    const std::string chinese = "请根据民法典的有关规定分析这份合同中的违约责任条款，第";
    const std::string french =
        "Où l'assemblée générale a-t-elle décidé de répartir les bénéfices de l'année passée ? Point ";
    const std::string russian =
        "Объясните, пожалуйста, как общее собрание приняло решение о распределении прибыли, пункт ";
    json line{{"bench", "route"}, {"labels", count}, {"buckets", classifier.buckets()}, {"texts", json::array()}};
    std::vector<std::pair<std::string, std::string>> texts{{"english", of_length(english, kLongest)},
                                                           {"code", of_length(code, kLongest)},
                                                           {"chinese", of_length(chinese, kLongest)},
                                                           {"french", of_length(french, kLongest)},
                                                           {"russian", of_length(russian, kLongest)}};
    for (int i = 3; i < argc; ++i) {
        std::ifstream in(argv[i], std::ios::binary);
        texts.emplace_back(std::filesystem::path(argv[i]).filename().string(),
                           std::string(std::istreambuf_iterator<char>(in), {}));
    }
    for (const auto& [name, whole] : texts)
        for (const std::size_t bytes : {std::size_t{100}, std::size_t{1000}, std::size_t{4000}, kLongest}) {
            const std::string text(attune::beginning_of(whole, bytes));
            const int calls = static_cast<int>(std::max<std::size_t>(10, 400'000 / bytes));
            const Compared took = compare(
                [&] {
                    (void)classifier.classify(
                        attune::comparable(attune::beginning_of(text, attune::Classifier::kScannedBytes)));
                },
                [&] { (void)(*tokenizer)->encode(text, false); }, calls);
            line["texts"].push_back({{"text", name},
                                     {"bytes", bytes},
                                     {"classify_us", took.first_us},
                                     {"encode_us", took.second_us},
                                     {"ratio", took.ratio}});
        }
    std::cout << line.dump() << std::endl;
    return 0;
}
