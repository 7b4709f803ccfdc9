#include <torch/torch.h>

#include "engine/module/file_base_values.hpp"
#include "engine/module/module_loader.hpp"
#include "engine/slots/kinds_house.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <memory>

namespace attune {
namespace {

using namespace testing;

std::filesystem::path states_root() { return golden::root().parent_path() / "golden_states"; }

// What acts in a case, in its order, as the reference data tells it.
struct StateCase {
    std::string name;
    std::vector<std::pair<std::string, float>> applied;
    Combine combine = Combine::sequence;
};

std::vector<StateCase> cases_of(const std::string& model) {
    std::vector<StateCase> cases;
    const nlohmann::json index = golden::read_json(states_root() / "index.json");
    for (const nlohmann::json& entry : index.at("cases")) {
        if (entry.at("model") != model) continue;
        StateCase one{entry.at("case").get<std::string>(), {}, Combine::sequence};
        for (const nlohmann::json& module : entry.at("applied"))
            one.applied.emplace_back(module.at("name").get<std::string>(), module.at("weight").get<float>());
        const std::string combine = entry.at("request").value("combine", "sequence");
        one.combine = combine == "parallel"      ? Combine::parallel
                      : combine == "interpolate" ? Combine::interpolate
                                                 : Combine::sequence;
        cases.push_back(std::move(one));
    }
    return cases;
}

struct GoldenStates {
    GoldenStates(const std::string& model_name, bool torch_kernels)
        : model(model_name), house(model_name, torch_kernels), cases(cases_of(model_name)) {
        limits.base_values = std::make_shared<test::FileBaseValues>(golden::model_folder(model) / "model.safetensors");
        limits.allow_unverified_base = true;  // control vectors name no base
        for (const StateCase& one : cases) references.push_back(golden::read_case(states_root(), model, one.name));
    }

    SlotId slot(const std::string& name) {
        if (const auto found = slots.find(name); found != slots.end()) return found->second;
        std::filesystem::path path = states_root() / "packages" / model / name;
        if (!std::filesystem::exists(path)) path += ".gguf";
        const auto module = load_module(name, path, house.model->shape(), limits);
        if (!module) throw std::runtime_error(module.error().message);
        return slots[name] = house.install(*module);
    }

    KindsSequence start(const StateCase& one, const std::vector<int>& prompt) {
        RowSlots modules;
        for (const auto& [name, weight] : one.applied) modules.push_back({slot(name), weight});
        return house.start(prompt, std::move(modules), one.combine);
    }

    std::string model;
    KindsHouse house;
    ModuleLimits limits;
    std::vector<StateCase> cases;
    std::vector<golden::Case> references;
    std::map<std::string, SlotId> slots;
};

float difference(const golden::Prompt& prompt, int first, const torch::Tensor& rows) {
    // from_blob wants a pointer to non-const; it is only read.
    auto* from = const_cast<float*>(prompt.logits.values.data()) + first * rows.size(1);
    return distance(rows, torch::from_blob(from, rows.sizes()));
}

const std::vector<std::string> kModels{"llama_gqa_tied", "qwen3_qknorm", "mistral_swa"};

TEST_CASE("packages and combinations of states give the reference's logits alone", "[engine][slots][state][golden]") {
    const std::string model = GENERATE(from_range(kModels));
    const bool torch_kernels = GENERATE(false, true);
    GoldenStates states(model, torch_kernels);
    REQUIRE(states.cases.size() >= 10);
    for (std::size_t i = 0; i < states.cases.size(); ++i) {
        for (const golden::Prompt& prompt : states.references[i].prompts) {
            states.house.forget();
            const auto logits = states.house.whole(states.start(states.cases[i], prompt.tokens));
            CAPTURE(model, torch_kernels, states.cases[i].name, prompt.tokens.size());
            CHECK(difference(prompt, 0, logits) <= golden::kTolerance);
        }
    }
}

TEST_CASE("B17: every combination of states in one batch gives the logits of each alone",
          "[engine][slots][state][golden][B17]") {
    const std::string model = GENERATE(from_range(kModels));
    const bool torch_kernels = GENERATE(false, true);
    GoldenStates states(model, torch_kernels);
    std::vector<KindsSequence> running;
    for (std::size_t i = 0; i < states.cases.size(); ++i)
        running.push_back(states.start(states.cases[i], states.references[i].prompts.back().tokens));
    for (int now = 0; now < 40; ++now) {
        std::vector<std::pair<KindsSequence*, int>> wanted;
        std::vector<std::pair<std::size_t, int>> parts;
        for (std::size_t i = 0; i < running.size(); ++i) {
            if (running[i].left() == 0) continue;
            parts.emplace_back(i, running[i].sequence.done - running[i].virtual_tokens);
            wanted.emplace_back(&running[i], std::min(running[i].left(), static_cast<int>(i % 3) + 1));
        }
        if (wanted.empty()) break;
        const Batch batch = states.house.step(wanted);
        const torch::Tensor logits = states.house.logits(batch);
        for (std::size_t s = 0; s < parts.size(); ++s) {
            const BatchSequence& entry = batch.sequences[s];
            const auto& [i, first] = parts[s];
            CAPTURE(model, torch_kernels, states.cases[i].name, now);
            CHECK(difference(states.references[i].prompts.back(), first,
                             logits.narrow(0, entry.first_row, entry.rows)) <= golden::kTolerance);
        }
    }
    for (const KindsSequence& one : running) CHECK(one.left() == 0);
}

}  // namespace
}  // namespace attune
