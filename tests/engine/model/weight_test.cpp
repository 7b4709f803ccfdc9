#include "engine/weights/weight.hpp"

#include "engine/model/test_model_folder.hpp"
#include "engine/weights/weight_audit.hpp"
#include "engine/weights/zero_pages.hpp"
#include "support/worker_threads.hpp"

#include <fstream>
#include <functional>
#include <string>

#include <catch2/catch.hpp>

using namespace attune;
using attune::testing::TempFolder;

namespace {

// 40 and 24 rows: neither fills whole panels.
constexpr std::int64_t kColumns = 48;
constexpr std::int64_t kRows[2] = {40, 24};

/// A weight of two fused tensors, loaded from a file.
struct Fixture {
    TempFolder folder;
    torch::Tensor values[2];
    std::shared_ptr<Weight> weight;

    Fixture(WeightLayout layout, torch::Dtype dtype) {
        torch::manual_seed(1);
        std::map<std::string, testing::RawTensor> tensors;
        std::vector<Weight::Part> parts;
        for (int i = 0; i < 2; ++i) {
            values[i] = torch::randn({kRows[i], kColumns});
            parts.push_back({i == 0 ? "first" : "second", kRows[i]});
            tensors.emplace(parts.back().name, testing::f32_tensor({kRows[i], kColumns}, floats(values[i])));
            if (dtype == torch::kBFloat16) values[i] = values[i].to(dtype).to(torch::kFloat32);
        }
        testing::write_safetensors(folder.path() / "model.safetensors", tensors);
        weight = std::make_shared<Weight>(parts, kColumns, Weight::Options{layout, dtype, torch::kCPU});
        auto files = open_tensor_files(folder.path());
        if (!files) throw std::runtime_error(files.error().message);
        for (std::size_t i = 0; i < 2; ++i) {
            auto ok = weight->load(i, files->at(parts[i].name), nullptr);
            if (!ok) throw std::runtime_error(ok.error().message);
        }
    }

    static std::vector<float> floats(const torch::Tensor& tensor) {
        const float* at = tensor.const_data_ptr<float>();
        return {at, at + tensor.numel()};
    }
};

#define EVERY_FORM()                                                                \
    const WeightLayout layout = GENERATE(WeightLayout::rows, WeightLayout::panels); \
    const torch::Dtype dtype = GENERATE(torch::kFloat32, torch::kBFloat16);         \
    CAPTURE(layout, dtype)

}  // namespace

TEST_CASE("a weight multiplies, and each of its tensors has its own columns in the result", "[engine][weights]") {
    EVERY_FORM();
    const Fixture fixture(layout, dtype);
    const auto x = torch::randn({5, kColumns});
    const auto y = fixture.weight->matmul(x);
    CHECK(y.size(1) == fixture.weight->outputs());
    for (std::size_t i = 0; i < 2; ++i) {
        const Weight::Part& part = fixture.weight->part(i);
        const auto expected = torch::linear(x, fixture.values[i]);
        const float worst = (y.narrow(1, part.first_output, part.rows) - expected).abs().max().item<float>();
        // libtorch rounds bfloat16 inputs and results; our kernels keep activations in float32.
        CHECK(worst < (layout == WeightLayout::rows && dtype == torch::kBFloat16 ? 0.2F : 1e-4F));
    }
}

TEST_CASE("rows read back are the stored values, whatever the packing", "[engine][weights]") {
    EVERY_FORM();
    const Fixture fixture(layout, dtype);
    CHECK(torch::equal(fixture.weight->read_rows(0, 0, 40), fixture.values[0]));
    CHECK(torch::equal(fixture.weight->read_rows(1, 7, 9), fixture.values[1].narrow(0, 7, 9)));
    CHECK_THROWS(fixture.weight->read_rows(1, 20, 5));
}

TEST_CASE("gathering picks embedding rows out of every form and refuses ids outside", "[engine][weights]") {
    EVERY_FORM();
    Weight weight({{"embedding", 50}}, kColumns, {layout, dtype, torch::kCPU});
    const auto values = torch::randn({50, kColumns}).to(dtype).to(torch::kFloat32);
    weight.overwrite_rows(0, 0, values);
    const auto ids = torch::tensor({49, 0, 33, 33}, torch::kInt64);
    CHECK(torch::equal(weight.gather(ids), values.index_select(0, ids)));
    CHECK_THROWS(weight.gather(torch::tensor({50}, torch::kInt64)));
}

TEST_CASE("overwriting rows changes these rows only, and reload brings the very bytes back", "[engine][weights]") {
    EVERY_FORM();
    Fixture fixture(layout, dtype);
    Weight& weight = *fixture.weight;
    const std::string before = weight.hash(0);
    CHECK(before == weight.expected(0));
    const auto epoch = weight.epoch(0);

    weight.overwrite_rows(0, 30, torch::ones({3, kColumns}));
    CHECK(weight.epoch(0) > epoch);
    CHECK(weight.hash(0) != before);
    CHECK(weight.hash(1) == weight.expected(1));
    CHECK(torch::equal(weight.read_rows(0, 30, 3), torch::ones({3, kColumns})));
    CHECK(torch::equal(weight.read_rows(0, 0, 30), fixture.values[0].narrow(0, 0, 30)));

    REQUIRE(weight.reload(0));
    CHECK(weight.hash(0) == before);
}

TEST_CASE("a flipped bit is healed from the file, and a changed file is told apart", "[engine][weights]") {
    EVERY_FORM();
    Fixture fixture(layout, dtype);
    Weight& weight = *fixture.weight;
    weight.flip_bit(1, 100);
    CHECK(weight.hash(1) != weight.expected(1));
    REQUIRE(weight.reload(1));
    CHECK(weight.hash(1) == weight.expected(1));

    // The same open file, written over in place.
    const auto path = fixture.folder.path() / "model.safetensors";
    const auto size = static_cast<std::streamoff>(std::filesystem::file_size(path));
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(size - 5);
    file.put('\x42');
    file.close();
    weight.flip_bit(1, 100);
    const std::string damaged = weight.hash(1);
    const auto refused = weight.reload(1);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == Errc::base_damaged);
    CHECK_THAT(refused.error().message, Catch::Contains("second"));
    CHECK(weight.hash(1) == damaged);  // nothing was written

    std::filesystem::resize_file(path, static_cast<std::uintmax_t>(size) / 2);
    CHECK_FALSE(weight.reload(1));
}

TEST_CASE("the audit names tensors in order and hashes them in slices", "[engine][weights][audit]") {
    EVERY_FORM();
    const Fixture fixture(layout, dtype);
    const auto audit = make_base_audit({fixture.weight}, "sha256:00");
    REQUIRE(audit->tensors() == 2);
    CHECK(audit->name(0) == "first");
    CHECK(audit->name(1) == "second");
    CHECK(audit->checkpoint() == "sha256:00");
    CHECK(audit->bytes(0) + audit->bytes(1) == fixture.weight->bytes());
    for (std::size_t tensor = 0; tensor < 2; ++tensor) {
        BaseAudit::Progress progress;
        std::uint64_t seen = 0;
        while (!progress.complete) {
            progress = audit->hash_some(tensor, 1000);
            REQUIRE(progress.bytes <= 1000);
            REQUIRE(progress.bytes > 0);
            seen += progress.bytes;
        }
        CHECK(seen == audit->bytes(tensor));
        CHECK(progress.hash == audit->expected(tensor));
    }
}

TEST_CASE("a flipped bit changes the audit's hash within one pass", "[engine][weights][audit]") {
    const Fixture fixture(WeightLayout::panels, torch::kBFloat16);
    const auto audit = make_base_audit({fixture.weight}, "sha256:00");
    audit->flip_bit(0, audit->bytes(0) - 1);
    CHECK(audit->hash_some(0, 1 << 20).hash != audit->expected(0));
    CHECK(audit->hash_some(1, 1 << 20).hash == audit->expected(1));
    audit->flip_bit(0, audit->bytes(0) - 1);
    CHECK(audit->hash_some(0, 1 << 20).hash == audit->expected(0));
}

TEST_CASE("a tensor rewritten in the middle of its hash starts over", "[engine][weights][audit]") {
    Fixture fixture(WeightLayout::panels, torch::kFloat32);
    const auto audit = make_base_audit({fixture.weight}, "sha256:00");
    REQUIRE_FALSE(audit->hash_some(0, 1000).complete);
    fixture.weight->overwrite_rows(0, 39, torch::zeros({1, kColumns}));
    const auto whole = audit->hash_some(0, 1 << 20);
    CHECK(whole.complete);
    CHECK(whole.bytes == audit->bytes(0));
    CHECK(whole.hash == fixture.weight->hash(0));
}

TEST_CASE("the combined hash depends on every hash and on their order", "[engine][weights][audit]") {
    const auto combined = BaseAudit::combine({"aa", "bb"});
    CHECK(combined.size() == 32);
    CHECK(combined != BaseAudit::combine({"bb", "aa"}));
    CHECK(combined != BaseAudit::combine({"aa", "bc"}));
    CHECK(combined == BaseAudit::combine({"aa", "bb"}));
}

TEST_CASE("gradients flow through a weight in rows", "[engine][weights]") {
    const Fixture fixture(WeightLayout::rows, torch::kFloat32);
    auto x = torch::randn({2, kColumns}).requires_grad_(true);
    fixture.weight->matmul(x).sum().backward();
    const auto expected = torch::cat({fixture.values[0], fixture.values[1]}).sum(0);
    CHECK((x.grad()[0] - expected).abs().max().item<float>() < 1e-4F);
    const Fixture packed(WeightLayout::panels, torch::kFloat32);
    CHECK_THROWS(packed.weight->matmul(x));
}

TEST_CASE("large zero tensors cost memory only where they are used", "[engine][weights]") {
    const auto resident_kib = [] {
        std::ifstream status("/proc/self/status");
        std::string word;
        long kib = 0;
        while (status >> word) {
            if (word == "VmRSS:") status >> kib;
        }
        return kib;
    };
    const long before = resident_kib();
    const torch::Tensor tensor = zero_pages({1 << 20, 64}, torch::kFloat32, torch::kCPU, PageSize::usual);  // 256 MiB
    CHECK(tensor.narrow(0, 12345, 2).abs().max().item<float>() == 0.0F);
    CHECK(resident_kib() - before < 64 << 10);
}

TEST_CASE("a product of equal parts finishes every column of both once, when its outputs are made",
          "[engine][weights]") {
    const torch::Dtype dtype = GENERATE(torch::kFloat32, torch::kBFloat16);
    constexpr std::int64_t kEqual = 200;  // seven panels, the last not whole
    torch::manual_seed(2);
    Weight weight({{"gate", kEqual}, {"up", kEqual}}, kColumns, Weight::Options{WeightLayout::panels, dtype});
    for (std::size_t part = 0; part < 2; ++part) weight.overwrite_rows(part, 0, torch::randn({kEqual, kColumns}));
    const torch::Tensor x = torch::randn({5, kColumns});
    const torch::Tensor expected = weight.matmul(x);
    for (const int threads : {1, 2, 3}) {
        const WorkerThreads set(threads);
        const torch::Tensor y = torch::full({5, weight.outputs()}, NAN);
        const torch::Tensor sums = torch::zeros({5, kEqual});
        const auto add = [&](std::int64_t first, std::int64_t last) {
            REQUIRE(last <= kEqual);
            const auto own = [&](std::size_t part) {
                return y.narrow(1, weight.part(part).first_output + first, last - first);
            };
            sums.narrow(1, first, last - first).add_(own(0) + own(1));
        };
        weight.matmul(x, y, std::cref(add));
        CHECK(torch::equal(y, expected));
        CHECK(torch::equal(sums,
                           expected.narrow(1, 0, kEqual) + expected.narrow(1, weight.part(1).first_output, kEqual)));
    }
}
