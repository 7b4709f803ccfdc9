// States and packages: every reference case by its list of applied modules, in the order given there. What makes that
// list from a request (order, requires, members) is above the engine.

#include "support/golden_house.hpp"
#include "support/kernel_words.hpp"

#include <catch2/catch.hpp>

using namespace attune;

namespace {

std::filesystem::path states_root() { return golden::root().parent_path() / "golden_states"; }

std::filesystem::path package_of(const std::string& model, const std::string& name) {
    const auto folder = states_root() / "packages" / model / name;
    return std::filesystem::exists(folder) ? folder : std::filesystem::path(folder.string() + ".gguf");
}

Combine combine_of(const nlohmann::json& request) {
    const std::string word = request.value("combine", "sequence");
    return word == "parallel" ? Combine::parallel : word == "interpolate" ? Combine::interpolate : Combine::sequence;
}

}  // namespace

TEST_CASE("every reference case of states and packages gives the reference's rows and tokens", "[engine][golden]") {
    const std::string kernels = GENERATE(from_range(testing::kernel_words()));
    CAPTURE(kernels);
    int seen = 0;
    const auto index = golden::read_json(states_root() / "index.json");
    for (const std::string model : {"llama_gqa_tied", "qwen3_qknorm", "mistral_swa"}) {
        GoldenHouse house(model, {.kernels = kernels});
        ModuleLimits limits;
        limits.base_values = house.engine->base_values();
        ModelShape shape = house.engine->shape();
        shape.checkpoint = index.at("checkpoints").at(model);
        for (const auto& entry : index.at("cases")) {
            if (entry.at("model") != model) continue;
            const std::string name = entry.at("case");
            INFO(model << " " << name);
            std::vector<JobModule> modules;
            for (const auto& applied : entry.at("applied")) {
                const std::string module = applied.at("name");
                if (!house.slots.contains(module)) {
                    const auto loaded = load_module(module, package_of(model, module), shape, limits);
                    INFO((loaded ? "" : loaded.error().message));
                    REQUIRE(loaded);
                    house.slots.emplace(module, house.install(*loaded));
                }
                modules.push_back(house.module(module, applied.at("weight")));
            }
            for (const golden::Prompt& prompt : golden::read_case(states_root(), model, name).prompts) {
                const auto sink = house.add(prompt.tokens, greedy_with_whole_rows(shape.vocab_size), modules,
                                            combine_of(entry.at("request")));
                REQUIRE(house.run());
                CHECK(prompt_difference_from(prompt, *sink) <= golden::kTolerance);
                CHECK(difference_from(prompt, *sink) <= golden::kTolerance);
            }
            ++seen;
        }
        house.clear();
        CHECK(house.all_free());
    }
    CHECK(seen == 92);
}
