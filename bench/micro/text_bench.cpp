// Tokenizer and chat template of one model folder, on one thread.
// usage: text_bench FOLDER [TEXT_FILE]   prints one JSON line
#include "engine/text/chat_template.hpp"
#include "engine/text/tokenizer.hpp"

#include <nlohmann/json.hpp>

#include <chrono>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Calls `work` for about half a second; seconds of one call.
template <class Work>
double seconds_per_call(Work&& work) {
    const auto begin = std::chrono::steady_clock::now();
    int calls = 0;
    do {
        work();
        ++calls;
    } while (seconds_since(begin) < 0.5);
    return seconds_since(begin) / calls;
}

std::string sample_text() {
    std::string text;
    while (text.size() < (1u << 20)) {
        text += "The quick brown fox jumps over 12 lazy dogs; it's naïve, isn't it?\n\tint main() { return 0; }\n";
        text += "法律条文第12条：当事人应当履行合同义务。 Größe, façade, Привет мир! 😀\n";
    }
    return text;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        std::cerr << "usage: text_bench FOLDER [TEXT_FILE]\n";
        return 2;
    }
    auto begin = std::chrono::steady_clock::now();
    const auto tokenizer = attune::Tokenizer::open(argv[1]);
    const double load_s = seconds_since(begin);
    const auto chat_template = attune::ChatTemplate::open(argv[1]);
    if (!tokenizer || !chat_template || *chat_template == nullptr) {
        std::cerr << "the folder has no tokenizer or no chat template\n";
        return 1;
    }
    std::string text = sample_text();
    if (argc > 2) {
        std::ifstream file(argv[2], std::ios::binary);
        text.assign(std::istreambuf_iterator<char>(file), {});
    }
    std::vector<attune::TokenId> ids;
    const double encode_s = seconds_per_call([&] { ids = (*tokenizer)->encode(text, false); });
    const double decode_s = seconds_per_call([&] { (*tokenizer)->decode(ids, false); });
    const double prompt_s = seconds_per_call([&] { (*tokenizer)->encode("What is the capital of France?", false); });
    attune::ChatPrompt chat;
    chat.messages_json = R"([{"role":"system","content":"You are terse."},{"role":"user","content":"Hi"},)"
                         R"({"role":"assistant","content":"Hello!"},{"role":"user","content":"What is 2+2?"}])";
    const double render_s = seconds_per_call([&] { (void)(*chat_template)->render(chat); });
    const nlohmann::json line = {{"bench", "text"},
                                 {"load_ms", load_s * 1e3},
                                 {"text_bytes", text.size()},
                                 {"tokens", ids.size()},
                                 {"encode_mb_per_s", static_cast<double>(text.size()) / 1e6 / encode_s},
                                 {"decode_mb_per_s", static_cast<double>(text.size()) / 1e6 / decode_s},
                                 {"short_prompt_us", prompt_s * 1e6},
                                 {"render_us", render_s * 1e6}};
    std::cout << line.dump() << "\n";
    return 0;
}
