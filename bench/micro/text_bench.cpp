// A tokenizer on one thread, as a process that is told what to time: bench/text/tokenizer_ratio.py drives it.
// usage: text_bench FOLDER   reads jobs from stdin, one JSON object a line, and answers each with one JSON line:
//   {"job": "load"}                         opens the folder once more
//   {"job": "encode", "texts": FILE}        each text of the file, a JSON list of strings
//   {"job": "decode", "texts": FILE}        the ids of those texts
//   {"job": "ids", "texts": FILE}           the ids themselves, untimed
// Answers carry "seconds" of CPU time and "tokens".
#include "engine/text/tokenizer.hpp"

#include <nlohmann/json.hpp>

#include <ctime>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace {

using attune::TokenId;
using nlohmann::json;

/// CPU seconds of the process: a busy machine does not lengthen them.
double cpu_seconds() {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double seconds_of(const std::function<void()>& work) {
    const double begin = cpu_seconds();
    work();
    return cpu_seconds() - begin;
}

class Bench {
public:
    Bench(std::string folder, std::shared_ptr<const attune::Tokenizer> tokenizer)
        : folder_(std::move(folder)), tokenizer_(std::move(tokenizer)) {}

    json run(const json& job) {
        const std::string name = job.at("job");
        if (name == "load") {
            bool opened = false;
            const double seconds = seconds_of([&] { opened = bool(attune::Tokenizer::open(folder_)); });
            return {{"seconds", seconds}, {"opened", opened}};
        }
        const auto& texts = texts_of(job.at("texts"));
        std::vector<std::vector<TokenId>> ids(texts.size());
        const double encode_s = seconds_of([&] {
            for (std::size_t i = 0; i < texts.size(); ++i) ids[i] = tokenizer_->encode(texts[i], false);
        });
        if (name == "ids") return {{"ids", ids}};
        std::size_t tokens = 0;
        for (const auto& one : ids) tokens += one.size();
        if (name == "encode") return {{"seconds", encode_s}, {"tokens", tokens}};
        std::size_t bytes = 0;
        const double decode_s = seconds_of([&] {
            for (const auto& one : ids) bytes += tokenizer_->decode(one, false).size();
        });
        return {{"seconds", decode_s}, {"tokens", tokens}, {"bytes", bytes}};
    }

private:
    const std::vector<std::string>& texts_of(const std::string& file) {
        auto known = texts_.find(file);
        if (known == texts_.end()) {
            std::ifstream stream(file, std::ios::binary);
            known = texts_.emplace(file, json::parse(stream).get<std::vector<std::string>>()).first;
        }
        return known->second;
    }

    std::string folder_;
    std::shared_ptr<const attune::Tokenizer> tokenizer_;
    std::map<std::string, std::vector<std::string>> texts_;
};

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        std::cerr << "usage: text_bench FOLDER\n";
        return 2;
    }
    auto tokenizer = attune::Tokenizer::open(argv[1]);
    if (!tokenizer) {
        std::cerr << tokenizer.error().message << "\n";
        return 1;
    }
    Bench bench(argv[1], std::move(*tokenizer));
    std::string line;
    try {
        while (std::getline(std::cin, line)) std::cout << bench.run(json::parse(line)).dump() << std::endl;
    } catch (const std::exception& error) {
        std::cerr << error.what() << "\n";
        return 1;
    }
    return 0;
}
