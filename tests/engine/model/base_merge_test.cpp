#include "engine/model/base_merge.hpp"

#include "engine/model/llama_model.hpp"
#include "engine/weights/base_audit.hpp"
#include "support/audit_pass.hpp"
#include "support/golden.hpp"

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

using namespace attune;

namespace {

constexpr Projection kAll[] = {Projection::q,    Projection::k,  Projection::v,   Projection::o,
                               Projection::gate, Projection::up, Projection::down};

std::unique_ptr<LlamaModel> open(const std::filesystem::path& path, torch::Dtype dtype, bool torch_kernels = false) {
    auto loaded = load_model(path, {torch::kCPU, dtype, torch_kernels});
    if (!loaded) throw std::runtime_error(loaded.error().message);
    return std::unique_ptr<LlamaModel>(dynamic_cast<LlamaModel*>(loaded->release()));
}
std::unique_ptr<LlamaModel> open_golden(const std::string& name, torch::Dtype dtype, bool torch_kernels = false) {
    return open(golden::model_folder(name), dtype, torch_kernels);
}

std::vector<float> random_values(std::mt19937& random, std::size_t count) {
    std::uniform_real_distribution<float> uniform(-0.1F, 0.1F);
    std::vector<float> values(count);
    for (float& value : values) value = uniform(random);
    return values;
}

/// On every projection of every layer: a low-rank pair, shards or a dense change in turn, gains beside them.
std::shared_ptr<Module> make_mutable(const ModelShape& shape, unsigned seed) {
    std::mt19937 random(seed);
    auto module = std::make_shared<Module>();
    module->id.name = "m" + std::to_string(seed);
    int turn = 0;
    for (int layer = 0; layer < shape.layer_count(); ++layer) {
        for (const Projection projection : kAll) {
            const int in = shape.in_features(projection);
            const int out = shape.out_features(projection);
            const int kind = turn++ % 3;
            LowRankPair pair{layer, projection, kind == 1 ? 5 : kind == 2 ? in : 3, 1.5F, {}, {}};
            if (kind == 0) pair.a = random_values(random, static_cast<std::size_t>(pair.rank * in));
            pair.b = random_values(random, static_cast<std::size_t>(pair.rank * out));
            module->pairs.push_back(std::move(pair));
            if (turn % 2 == 0)
                module->outputs.push_back(
                    {layer, projection, random_values(random, static_cast<std::size_t>(out)), false, {}});
            if (turn % 5 == 0)
                module->inputs.push_back({layer, projection, random_values(random, static_cast<std::size_t>(in))});
        }
    }
    return module;
}

ModulePtr make_module(const ModelShape& shape, unsigned seed) { return make_mutable(shape, seed); }

/// The resident hash of every tensor, whatever the audit expects.
std::map<std::string, std::string> hashes(const LlamaModel& model) {
    std::map<std::string, std::string> all;
    for (const auto& weight : model.weights()) {
        for (std::size_t part = 0; part < weight->parts(); ++part) all[weight->part(part).name] = weight->hash(part);
    }
    return all;
}

std::vector<const void*> addresses(const LlamaModel& model) {
    std::vector<const void*> all;
    for (const auto& weight : model.weights()) all.push_back(weight->address());
    return all;
}

/// What a merge has to make of one matrix, in float64.
torch::Tensor expected_rows(const torch::Tensor& base, int layer, Projection projection,
                            const std::vector<MergedModule>& modules) {
    const std::int64_t out = base.size(0);
    const std::int64_t in = base.size(1);
    const auto at = [&](const auto& term) { return term.layer == layer && term.projection == projection; };
    const auto wide = [](const std::vector<float>& values, std::int64_t rows) {
        return torch::tensor(values).to(torch::kFloat64).view({rows, -1});
    };
    torch::Tensor gain = torch::ones({out, in}, torch::kFloat64);
    torch::Tensor delta = torch::zeros({out, in}, torch::kFloat64);
    for (const auto& [module, weight] : modules) {
        for (const OutputTerm& term : module->outputs)
            if (at(term)) gain += wide(term.gain, out) * weight;
        for (const InputTerm& term : module->inputs)
            if (at(term)) gain += wide(term.gain, 1) * weight;
        for (const LowRankPair& pair : module->pairs) {
            if (!at(pair)) continue;
            torch::Tensor a = torch::zeros({pair.rank, in}, torch::kFloat64);
            if (pair.a.empty()) {
                for (std::int64_t j = 0; j < in; ++j) a[j % pair.rank][j] = 1;
            } else {
                a = wide(pair.a, pair.rank);
            }
            delta += wide(pair.b, out).matmul(a) * (static_cast<double>(weight) * static_cast<double>(pair.scale));
        }
    }
    return base.to(torch::kFloat64) * gain + delta;
}

}  // namespace

TEST_CASE("a merge makes of every matrix what its modules say, and restoring brings the very bytes back",
          "[engine][merge][B21]") {
    const torch::Dtype dtype = GENERATE(torch::kFloat32, torch::kBFloat16);
    const bool torch_kernels = GENERATE(false, true);
    const bool keep_copies = GENERATE(false, true);
    CAPTURE(dtype, torch_kernels, keep_copies);
    for (const char* const name : {"llama_gqa_tied", "qwen2_bias"}) {
        const auto model = open_golden(name, dtype, torch_kernels);
        const auto before = hashes(*model);
        const auto places = addresses(*model);
        const std::vector<MergedModule> modules{{make_module(model->shape(), 1), 0.75F},
                                                {make_module(model->shape(), 2), -0.5F}};
        std::map<std::pair<int, Projection>, torch::Tensor> bases;
        for (int layer = 0; layer < model->shape().layer_count(); ++layer) {
            for (const Projection projection : kAll) {
                const auto place = model->projection_weight(layer, projection);
                bases[{layer, projection}] =
                    place.weight->read_rows(place.part, 0, place.weight->part(place.part).rows);
            }
        }
        BaseMerge merge(*model, keep_copies);
        REQUIRE(merge.merge(modules));
        CHECK(merge.is_merged());
        for (const auto& [key, base] : bases) {
            const auto place = model->projection_weight(key.first, key.second);
            const auto expected = expected_rows(base, key.first, key.second, modules);
            const auto got = place.weight->read_rows(place.part, 0, base.size(0)).to(torch::kFloat64);
            const auto allowed = expected.abs() * (dtype == torch::kBFloat16 ? 0.004 : 1e-6) + 1e-6;
            INFO(name << " layer " << key.first << " " << projection_name(key.second));
            CHECK(((got - expected).abs() <= allowed).all().item<bool>());
        }
        CHECK(hashes(*model) != before);
        CHECK(is_clean(*model->audit()));
        REQUIRE(merge.restore());
        CHECK_FALSE(merge.is_merged());
        CHECK(hashes(*model) == before);
        CHECK(is_clean(*model->audit()));
        CHECK(addresses(*model) == places);
    }
}

TEST_CASE("a thousand merges leave no trace, and a pass of the audit between any two raises no alarm",
          "[engine][merge][audit][B21]") {
    const torch::Dtype dtype = GENERATE(torch::kFloat32, torch::kBFloat16);
    CAPTURE(dtype);
    const auto model = open_golden("llama_gqa_tied", dtype);
    const auto before = hashes(*model);
    const auto audit = model->audit();
    const std::vector<MergedModule> modules{{make_module(model->shape(), 3), 1.0F}};
    BaseMerge merge(*model, false);
    std::size_t tensor = 0;
    int complete = 0;
    int wrong = 0;
    // Slices of odd sizes: a tensor is rewritten in the middle of its hash again and again.
    const auto hash_on = [&](std::uint64_t budget) {
        const BaseAudit::Progress progress = audit->hash_some(tensor, budget);
        if (!progress.complete) return;
        ++complete;
        wrong += progress.hash != audit->expected(tensor);
        tensor = (tensor + 1) % audit->tensors();
    };
    int changed = 0;
    for (int cycle = 0; cycle < 1000; ++cycle) {
        // Often enough in one go, or no tensor would ever be done.
        hash_on(cycle % 3 == 0 ? audit->bytes(tensor) : 5000 + 37 * static_cast<std::uint64_t>(cycle % 100));
        REQUIRE(merge.merge(modules));
        hash_on(cycle % 3 == 1 ? audit->bytes(tensor) : 700 * static_cast<std::uint64_t>(1 + cycle % 50));
        REQUIRE(merge.restore());
        const auto after = hashes(*model);
        changed += after != before;
    }
    CHECK(changed == 0);
    CHECK(wrong == 0);
    CHECK(complete > static_cast<int>(audit->tensors()));
}

TEST_CASE("whole passes on another thread beside a thousand merges raise no alarm", "[engine][merge][audit]") {
    const auto model = open_golden("llama_gqa_tied", torch::kBFloat16);
    const auto audit = model->audit();
    const std::vector<MergedModule> modules{{make_module(model->shape(), 10), 1.0F}};
    BaseMerge merge(*model, false);
    std::atomic<bool> over{false};
    std::atomic<int> passes{0};
    std::atomic<int> wrong{0};
    std::thread auditor([&] {
        while (!over || passes == 0) {
            wrong += is_clean(*audit) ? 0 : 1;
            ++passes;
        }
    });
    int failed = 0;
    for (int cycle = 0; cycle < 1000; ++cycle) {
        failed += merge.merge(modules) ? 0 : 1;
        failed += merge.restore() ? 0 : 1;
    }
    over = true;
    auditor.join();
    CHECK(failed == 0);
    CHECK(wrong == 0);
    CHECK(passes >= 1);
}

TEST_CASE("a bit flipped in a merged tensor is found, and one flipped before the merge is not hidden by it",
          "[engine][merge][audit]") {
    const auto model = open_golden("llama_gqa_tied", torch::kBFloat16);
    const auto before = hashes(*model);
    const auto audit = model->audit();
    const std::vector<MergedModule> modules{{make_module(model->shape(), 4), 1.0F}};
    BaseMerge merge(*model, GENERATE(false, true));
    REQUIRE(merge.merge(modules));
    const auto place = model->projection_weight(1, Projection::k);
    place.weight->flip_bit(place.part, 11);
    CHECK_FALSE(is_clean(*audit));
    REQUIRE(merge.restore());
    CHECK(hashes(*model) == before);

    place.weight->flip_bit(place.part, 11);
    const auto damaged = hashes(*model);
    const auto refused = merge.merge(modules);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == Errc::base_damaged);
    CHECK_THAT(refused.error().message, Catch::Contains("model.layers.1.self_attn.k_proj.weight"));
    CHECK_FALSE(merge.is_merged());
    CHECK(hashes(*model) == damaged);
    CHECK_FALSE(is_clean(*audit));
    for (std::size_t i = 0; i < audit->tensors(); ++i) REQUIRE(audit->restore(i));
    CHECK(hashes(*model) == before);
    CHECK(is_clean(*audit));
}

TEST_CASE("a module with a value that is not finite in its last layer is refused before the base is touched",
          "[engine][merge][B23]") {
    const auto model = open_golden("llama_gqa_tied", torch::kBFloat16);
    const auto before = hashes(*model);
    const auto first = model->projection_weight(0, Projection::q);
    const auto epoch = first.weight->epoch(first.part);
    const auto bad = make_mutable(model->shape(), 5);
    const auto kind = GENERATE(0, 1, 2, 3);
    const float value = GENERATE(std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity());
    if (kind == 0) bad->pairs.back().b.back() = value;
    if (kind == 1) bad->pairs.front().a.back() = value;
    if (kind == 2) bad->outputs.back().gain.back() = value;
    if (kind == 3) bad->inputs.back().gain.back() = value;
    BaseMerge merge(*model, false);
    const auto refused = merge.merge(std::vector<MergedModule>{{make_module(model->shape(), 6), 1.0F}, {bad, 1.0F}});
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == Errc::invalid_module);
    CHECK_THAT(refused.error().message, Catch::Contains("\"m5\""));
    CHECK(first.weight->epoch(first.part) == epoch);
    CHECK_FALSE(merge.is_merged());
    CHECK(hashes(*model) == before);
}

TEST_CASE("a merge whose sum overflows in its last layer restores what it has touched", "[engine][merge][B23]") {
    const torch::Dtype dtype = GENERATE(torch::kFloat32, torch::kBFloat16);
    const bool keep_copies = GENERATE(false, true);
    const auto model = open_golden("llama_gqa_tied", dtype);
    const auto before = hashes(*model);
    const auto big = make_mutable(model->shape(), 7);
    big->pairs.back().b.back() = 3.4e38F;  // finite in float32, no bfloat16; times its scale no float32 either
    const auto first = model->projection_weight(0, Projection::q);
    const auto epoch = first.weight->epoch(first.part);
    BaseMerge merge(*model, keep_copies);
    const auto refused = merge.merge(std::vector<MergedModule>{{big, 1.0F}});
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == Errc::invalid_module);
    CHECK_THAT(refused.error().message, Catch::Contains("down_proj"));
    CHECK(first.weight->epoch(first.part) > epoch);  // it was written, and written back
    CHECK_FALSE(merge.is_merged());
    CHECK(hashes(*model) == before);
    CHECK(is_clean(*model->audit()));
}

TEST_CASE("a head that is the embedding too is never merged into", "[engine][merge]") {
    for (const auto& [name, merged] : std::map<std::string, bool>{{"llama_gqa_tied", false}, {"llama3_rope", true}}) {
        const auto model = open_golden(name, torch::kFloat32);
        const ModelShape& shape = model->shape();
        REQUIRE(shape.tied_embeddings == !merged);
        auto module = std::make_shared<Module>();
        std::mt19937 random(8);
        module->pairs.push_back({0, Projection::head, 2, 1.0F,
                                 random_values(random, static_cast<std::size_t>(2 * shape.hidden_size)),
                                 random_values(random, static_cast<std::size_t>(2 * shape.vocab_size))});
        BaseMerge merge(*model, false);
        const std::vector<MergedModule> modules{{module, 1.0F}};
        CHECK((merge.touched_bytes(modules) > 0) == merged);
        const auto before = hashes(*model);
        REQUIRE(merge.merge(modules));
        CHECK(merge.is_head_merged() == merged);
        CHECK((hashes(*model) != before) == merged);
        REQUIRE(merge.restore());
        CHECK(hashes(*model) == before);
    }
}

TEST_CASE("what acts on some rows only and saved heads are not for merging", "[engine][merge]") {
    Module module;
    CHECK(BaseMerge::can_merge(module));
    module.invocation = {1, 2};
    CHECK_FALSE(BaseMerge::can_merge(module));
    module.invocation.clear();
    module.head_rows = HeadRows{{1}, {0.0F}};
    CHECK_FALSE(BaseMerge::can_merge(module));
    module.head_rows.reset();
    module.pairs.push_back({0, Projection::head, 1, 1.0F, {0.0F}, {0.0F}});
    CHECK(BaseMerge::can_merge(module));
    module.pairs.push_back({0, Projection::head, 2, 1.0F, {}, {0.0F, 0.0F}});  // a saved head is a dense change
    CHECK_FALSE(BaseMerge::can_merge(module));
}

TEST_CASE("a quantised file's tensors are decoded again after a merge", "[engine][merge][gguf]") {
    const auto folder = std::filesystem::path(ATTUNE_TEST_DATA) / "gguf_models";
    const nlohmann::json index = golden::read_json(folder / "index.json");
    for (const auto& [name, entry] : index.items()) {
        INFO(name);
        const auto model = open(folder / name, torch::kBFloat16);
        const auto before = hashes(*model);
        BaseMerge merge(*model, false);
        REQUIRE(merge.merge(std::vector<MergedModule>{{make_module(model->shape(), 9), 1.0F}}));
        CHECK(hashes(*model) != before);
        REQUIRE(merge.restore());
        CHECK(hashes(*model) == before);
    }
}
