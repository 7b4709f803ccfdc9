#include <torch/torch.h>

#include "engine/files/gguf.hpp"
#include "engine/module/file_base_values.hpp"
#include "engine/module/module_loader.hpp"
#include "engine/slots/kinds_house.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <limits>
#include <map>

namespace attune {
namespace {

using namespace testing;

// The states of the reference data are older than the package format: their names differ, their scale stands beside.
ModulePtr read_state(const std::string& model, const nlohmann::json& told) {
    auto module = std::make_shared<Module>();
    module->id.name = "state";
    const auto path = golden::root() / told.at("file").get<std::string>();
    for (const int layer : told.at("layers").get<std::vector<int>>()) {
        StateLayer state;
        state.layer = layer;
        const std::string prefix = "layers." + std::to_string(layer) + ".";
        if (path.extension() == ".gguf") {
            state.kind = StateKind::vector;
            state.scale = told.at("strength").get<float>();
            const auto header = read_gguf_header(path);
            if (!header) throw std::runtime_error(header.error().message);
            const StoredTensor* stored = header->tensor("direction." + std::to_string(layer));
            std::vector<std::byte> bytes(stored->bytes);
            if (!ReadOnlyFile::open(path)->read(stored->begin, bytes)) throw std::runtime_error("short file");
            state.vector.resize(stored->bytes / sizeof(float));
            convert_to_f32(stored->type, bytes.data(), state.vector.data(), state.vector.size());
        } else {
            const auto tensors = golden::read_tensors(path);
            state.kind = StateKind::bottleneck;
            state.activation = Activation::tanh;
            state.scale = told.at("scale").get<float>();
            state.width = told.at("width").get<int>();
            state.down = tensors.at(prefix + "down.weight").values;
            state.down_bias = tensors.at(prefix + "down.bias").values;
            state.up = tensors.at(prefix + "up.weight").values;
            state.up_bias = tensors.at(prefix + "up.bias").values;
        }
        module->states.push_back(std::move(state));
    }
    CAPTURE(model);
    REQUIRE_FALSE(module->states.empty());
    return module;
}

// Every case of one model that is one module: its name and the module.
std::map<std::string, ModulePtr> modules_of(const std::string& model, const ModelShape& shape) {
    std::map<std::string, ModulePtr> modules;
    ModuleLimits limits;
    limits.base_values = std::make_shared<test::FileBaseValues>(golden::model_folder(model) / "model.safetensors");
    for (const auto& entry : std::filesystem::directory_iterator(golden::root() / "adapters" / model)) {
        const std::string name = entry.path().filename();
        const auto module = load_module(name, entry.path(), shape, limits);
        if (!module) throw std::runtime_error(module.error().message);
        modules[name] = *module;
    }
    for (const char* name : {"state_bottleneck", "state_control_vector"}) {
        const auto told = golden::read_json(golden::root() / "golden" / model / (std::string(name) + ".json"));
        modules[name] = read_state(model, told.at("state"));
    }
    return modules;
}

struct GoldenKinds {
    explicit GoldenKinds(const std::string& model, bool torch_kernels) : house(model, torch_kernels) {
        for (const auto& [name, module] : modules_of(model, house.model->shape())) {
            references[name] = golden::read_case(model, name);
            slots[name] = house.install(module);
        }
        references["base"] = golden::read_case(model, "base");
    }

    KindsSequence start(const std::string& name, const std::vector<int>& prompt) {
        if (name == "base") return house.start(prompt, {});
        const Module& module = *house.slots->module(slots.at(name));
        KindsSequence one = house.start(prompt, {{slots.at(name), 1.0F}});
        if (!module.invocation.empty()) {
            const auto last =
                std::find_end(prompt.begin(), prompt.end(), module.invocation.begin(), module.invocation.end());
            one.modules_from =
                last == prompt.end() ? std::numeric_limits<int>::max() : static_cast<int>(last - prompt.begin());
        }
        return one;
    }

    KindsHouse house;
    std::map<std::string, golden::Case> references;
    std::map<std::string, SlotId> slots;
};

float difference(const golden::Prompt& prompt, int first, const torch::Tensor& rows) {
    const std::int64_t vocab = rows.size(1);
    // from_blob wants a pointer to non-const; it is only read.
    auto* from = const_cast<float*>(prompt.logits.values.data()) + first * vocab;
    return distance(rows, torch::from_blob(from, rows.sizes()));
}

TEST_CASE("every module of the reference data gives PEFT's logits alone", "[engine][slots][golden][B4]") {
    const std::string model = GENERATE(from_range(golden::models()));
    const bool torch_kernels = GENERATE(false, true);
    GoldenKinds kinds(model, torch_kernels);
    CHECK(kinds.slots.size() >= 18);
    for (const auto& [name, slot] : kinds.slots) {
        for (const golden::Prompt& prompt : kinds.references.at(name).prompts) {
            kinds.house.forget();
            const auto logits = kinds.house.whole(kinds.start(name, prompt.tokens));
            const float off = difference(prompt, 0, logits);
            CAPTURE(model, torch_kernels, name, prompt.tokens.size());
            CHECK(off <= golden::kTolerance);
        }
    }
}

TEST_CASE("B17: modules of every kind in one batch give the logits of each alone", "[engine][slots][golden][B17]") {
    const std::string model = GENERATE(from_range(golden::models()));
    const bool torch_kernels = GENERATE(false, true);
    GoldenKinds kinds(model, torch_kernels);
    std::vector<KindsSequence> running;
    std::vector<const golden::Prompt*> prompts;
    std::vector<std::string> names;
    for (const auto& [name, reference] : kinds.references) {
        prompts.push_back(&reference.prompts[3 - running.size() % 3]);
        running.push_back(kinds.start(name, prompts.back()->tokens));
        names.push_back(name);
    }
    for (int now = 0; now < 60; ++now) {
        std::vector<std::pair<KindsSequence*, int>> wanted;
        std::vector<std::pair<std::size_t, int>> parts;
        for (std::size_t i = 0; i < running.size(); ++i) {
            if (running[i].left() == 0) continue;
            parts.emplace_back(i, running[i].sequence.done - running[i].virtual_tokens);
            wanted.emplace_back(&running[i], std::min(running[i].left(), static_cast<int>(i % 4) + 1));
        }
        if (wanted.empty()) break;
        const Batch batch = kinds.house.step(wanted);
        const torch::Tensor logits = kinds.house.logits(batch);
        for (std::size_t s = 0; s < parts.size(); ++s) {
            const BatchSequence& entry = batch.sequences[s];
            const auto& [i, first] = parts[s];
            const int skipped = std::min(std::max(-first, 0), entry.rows);  // virtual tokens
            if (skipped == entry.rows) continue;
            CAPTURE(model, torch_kernels, names[i], now);
            CHECK(difference(*prompts[i], first + skipped,
                             logits.narrow(0, entry.first_row + skipped, entry.rows - skipped)) <= golden::kTolerance);
        }
    }
    for (const KindsSequence& one : running) CHECK(one.left() == 0);
}

TEST_CASE("an aLoRA's rows before its invocation have the base's bits", "[engine][slots][golden]") {
    const std::string model = GENERATE(from_range(golden::models()));
    GoldenKinds kinds(model, false);
    const golden::Case& reference = kinds.references.at("alora");
    for (const golden::Prompt& prompt : reference.prompts) {
        kinds.house.forget();
        const KindsSequence one = kinds.start("alora", prompt.tokens);
        const auto touched = kinds.house.whole(one);
        const auto base = kinds.house.whole(kinds.start("base", prompt.tokens));
        const auto before = std::min<std::int64_t>(one.modules_from, base.size(0));
        CAPTURE(model, before);
        CHECK(torch::equal(touched.narrow(0, 0, before), base.narrow(0, 0, before)));
        if (before < base.size(0)) CHECK_FALSE(torch::equal(touched[before], base[before]));
    }
}

}  // namespace
}  // namespace attune
