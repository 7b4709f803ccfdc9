// Weights in int8 and 4 bits: what they hold, what they multiply to, and that they heal but never change.

#include "engine/weights/weight.hpp"

#include "engine/files/gguf.hpp"
#include "engine/model/test_model_folder.hpp"
#include "support/worker_threads.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include <catch2/catch.hpp>

using namespace attune;
using attune::testing::TempFolder;

namespace {

constexpr Quant kAll[] = {Quant::int8, Quant::int4, Quant::int4_min};
constexpr std::int64_t kColumns = 96;
// None fills whole panels.
constexpr std::int64_t kRows[3] = {40, 24, 70};

std::vector<float> floats(const torch::Tensor& tensor) {
    const torch::Tensor whole = tensor.contiguous();
    const float* at = whole.const_data_ptr<float>();
    return {at, at + whole.numel()};
}

/// Three fused tensors in three forms, loaded from a float32 file.
struct Fixture {
    TempFolder folder;
    torch::Tensor values[3];
    std::unique_ptr<Weight> weight;

    explicit Fixture(std::vector<Quant> forms = {Quant::int8, Quant::none, Quant::int4_min}) {
        torch::manual_seed(1);
        std::map<std::string, testing::RawTensor> tensors;
        std::vector<Weight::Part> parts;
        for (std::size_t i = 0; i < forms.size(); ++i) {
            values[i] = torch::randn({kRows[i], kColumns}) * 0.1;
            parts.push_back({"part" + std::to_string(i), kRows[i], 0, forms[i]});
            tensors.emplace(parts.back().name, testing::f32_tensor({kRows[i], kColumns}, floats(values[i])));
        }
        testing::write_safetensors(folder.path() / "model.safetensors", tensors);
        weight = std::make_unique<Weight>(parts, kColumns,
                                          Weight::Options{WeightLayout::panels, torch::kBFloat16, torch::kCPU});
        auto files = open_tensor_files(folder.path());
        if (!files) throw std::runtime_error(files.error().message);
        for (std::size_t i = 0; i < forms.size(); ++i) {
            auto ok = weight->load(i, files->at(parts[i].name), nullptr);
            if (!ok) throw std::runtime_error(ok.error().message);
        }
    }
};

QuantRows rows_of(Quant quant, std::int64_t columns) {
    QuantRows rows;
    rows.quant = quant;
    rows.columns = columns;
    return rows;
}

/// The tensor of a file of tests/data/gguf that has the most values, as stored.
struct StoredValues {
    StoredTensor stored;
    std::vector<std::byte> bytes;
    std::vector<float> values;

    explicit StoredValues(const std::string& file) {
        const auto path = std::filesystem::path(ATTUNE_TEST_DATA) / "gguf" / file;
        const auto header = read_gguf_header(path);
        const auto opened = ReadOnlyFile::open(path);
        if (!header || !opened) throw std::runtime_error(file + " cannot be read");
        for (const StoredTensor& tensor : header->tensors) {
            if (block_elements(tensor.type) > 1 && tensor.bytes > stored.bytes) stored = tensor;
        }
        bytes.resize(stored.bytes);
        if (!opened->read(stored.begin, bytes)) throw std::runtime_error(file + " is short");
        values.resize(bytes.size() / block_bytes(stored.type) * block_elements(stored.type));
        if (!convert_to_f32(stored.type, bytes.data(), values.data(), values.size()))
            throw std::runtime_error(file + " cannot be decoded");
    }
};

}  // namespace

TEST_CASE("rounding to codes is off by half a step at most, and what is packed is what was rounded",
          "[engine][weights][quant]") {
    torch::manual_seed(4);
    const torch::Tensor values = torch::randn({45, kColumns});
    values[3].mul_(1e-4);  // scales that are subnormal as float16
    values[4].zero_();
    values[5].fill_(0.75);
    values[6].narrow(0, 0, 32).abs_();  // of one sign
    values[7].narrow(0, 32, 32).abs_().neg_();
    const std::vector<float> exact = floats(values);
    for (const Quant quant : kAll) {
        CAPTURE(code_bits(quant), quant == Quant::int4_min);
        QuantRows rows = rows_of(quant, kColumns);
        REQUIRE(quantise(exact, rows));
        CHECK(rows.rows() == 45);
        std::vector<float> held(exact.size());
        dequantise(rows, held);
        for (std::size_t group = 0; group < rows.scales.size(); ++group) {
            float low = exact[group * 32];
            float high = low;
            float worst = 0;
            for (std::size_t i = group * 32; i < group * 32 + 32; ++i) {
                low = std::min(low, exact[i]);
                high = std::max(high, exact[i]);
                worst = std::max(worst, std::fabs(exact[i] - held[i]));
            }
            const float peak = std::max(-low, high);
            const float step = quant == Quant::int8       ? peak / 127
                               : quant == Quant::int4_min ? (high - low) / 15
                                                          : peak / 8;
            // int4 has one step less on the side of the smaller magnitude: up to a whole step there.
            const float steps = quant == Quant::int4 ? 1.0F : 0.5F;
            CHECK(worst <= step * steps + peak * 2e-3F + 1e-6F);
        }

        std::vector<std::byte> panels(2 * kPanelOutputs * packed_row_bytes(quant, kColumns), std::byte{0xAB});
        pack_panels(rows, panels.data());
        std::vector<float> row(kColumns);
        for (std::int64_t r = 0; r < 64; ++r) {
            unpack_row(quant, panels.data(), r, kColumns, row.data());
            for (std::int64_t c = 0; c < kColumns; ++c)
                CHECK(row[static_cast<std::size_t>(c)] ==
                      (r < 45 ? held[static_cast<std::size_t>(r * kColumns + c)] : 0.0F));
        }
    }
}

TEST_CASE("values that are not finite, or too large for a scale, are no quantised weight", "[engine][weights][quant]") {
    for (const Quant quant : kAll) {
        for (const float bad :
             {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(), 3e9F}) {
            std::vector<float> values(64, 0.5F);
            values[40] = bad;
            QuantRows rows = rows_of(quant, 64);
            CHECK_FALSE(quantise(values, rows));
        }
    }
}

TEST_CASE("blocks of Q8_0, Q4_0 and Q4_1 are held to the bit, those of Q4_K but for the rounding of their scales",
          "[engine][weights][quant][gguf]") {
    for (const std::string file : {"q8_0.gguf", "q4_0.gguf", "q4_1.gguf", "q4_k.gguf"}) {
        CAPTURE(file);
        const StoredValues from(file);
        REQUIRE(quant_of(from.stored.type) != Quant::none);
        QuantRows rows = rows_of(quant_of(from.stored.type), from.stored.shape.back());
        REQUIRE(take_blocks(from.stored.type, from.bytes, rows));
        std::vector<float> held(from.values.size());
        REQUIRE(rows.codes.size() == held.size());
        dequantise(rows, held);
        float worst = 0;
        for (std::size_t i = 0; i < held.size(); ++i) {
            const std::size_t group = i / 32;
            const float scale =
                std::fabs(rows.scales[group]) * 15 + (rows.minima.empty() ? 0.0F : std::fabs(rows.minima[group]));
            worst = std::max(worst, std::fabs(held[i] - from.values[i]) / (scale + 1e-30F));
        }
        if (from.stored.type == StoredType::q4_k) {
            CHECK(worst < 1.0F / 1024);
            CHECK(worst > 0.0F);
        } else {
            CHECK(worst == 0.0F);
        }
    }
}

TEST_CASE("a weight of parts in several forms multiplies what each holds", "[engine][weights][quant]") {
    const Fixture fixture;
    const Weight& weight = *fixture.weight;
    CHECK(weight.is_quantised());
    CHECK(weight.bytes() == 64 * 102 + 32 * 192 + 96 * 60);  // 34, 64 and 20 bytes per 32 weights, whole panels
    const torch::Tensor x = torch::randn({7, kColumns});
    const torch::Tensor y = weight.matmul(x);
    for (std::size_t part = 0; part < 3; ++part) {
        CAPTURE(part);
        const torch::Tensor held = weight.read_rows(part, 0, kRows[part]);
        const float coarse = part == 0 ? 0.003F : part == 1 ? 0.001F : 0.03F;
        CHECK((held - fixture.values[part]).abs().max().item<float>() < coarse);
        const torch::Tensor expected = torch::linear(x, held);
        const torch::Tensor got = y.narrow(1, weight.part(part).first_output, kRows[part]);
        // Activations of +-3.5 in 127 steps, 96 products of weights of 0.1.
        const float off = (got - expected).abs().max().item<float>();
        CHECK(off < (part == 1 ? 1e-4F : 0.06F));
        CHECK(off >= (part == 1 ? 0.0F : 1e-4F));
    }
}

TEST_CASE("a row's product has the same bits alone, in batches of 2 to 64 and on any number of threads",
          "[engine][weights][quant]") {
    const Fixture fixture;
    const torch::Tensor x = torch::randn({64, kColumns});
    const torch::Tensor all = fixture.weight->matmul(x);
    for (const int threads : {1, 2, 3}) {
        const WorkerThreads set(threads);
        for (std::int64_t rows = 1; rows <= 64; ++rows) {
            CHECK(torch::equal(fixture.weight->matmul(x.narrow(0, 64 - rows, rows)), all.narrow(0, 64 - rows, rows)));
        }
    }
}

TEST_CASE("rows of a quantised table are gathered as they are held", "[engine][weights][quant]") {
    for (const Quant quant : kAll) {
        const Fixture fixture({quant});
        const torch::Tensor ids = torch::tensor(std::vector<std::int64_t>{39, 0, 17, 39, 32});
        const torch::Tensor rows = fixture.weight->gather(ids);
        CHECK(torch::equal(rows, fixture.weight->read_rows(0, 0, 40).index_select(0, ids)));
        std::vector<float> again(5 * kColumns);
        REQUIRE(fixture.weight->read_source_rows(0, 30, 5, again));
        CHECK(again == floats(fixture.weight->read_rows(0, 30, 5)));
    }
}

TEST_CASE("a quantised part is never changed, and a damaged one heals from its file",
          "[engine][weights][quant][audit]") {
    const Fixture fixture;
    Weight& weight = *fixture.weight;
    WeightChange change;
    change.rank = 1;
    change.a.assign(kColumns, 1.0F);
    for (const std::size_t part : {0U, 2U}) {
        CAPTURE(part);
        change.b.assign(static_cast<std::size_t>(kRows[part]), 1.0F);
        const auto refused = weight.change(part, true, change);
        REQUIRE_FALSE(refused);
        CHECK(refused.error().code == Errc::unsupported);
        CHECK_THAT(refused.error().message,
                   Catch::Contains("part" + std::to_string(part)) && Catch::Contains("quantised"));
        CHECK_THROWS(weight.overwrite_rows(part, 0, torch::zeros({1, kColumns})));
        CHECK(weight.hash(part) == weight.expected(part));
        CHECK(weight.epoch(part) == 0);

        for (const bool restore : {false, true}) {
            weight.flip_bit(part, weight.part_bytes(part) - 1);
            CHECK(weight.hash(part) != weight.expected(part));
            REQUIRE((restore ? weight.restore(part) : weight.reload(part)));
            CHECK(weight.hash(part) == weight.expected(part));
        }
    }
    change.b.assign(static_cast<std::size_t>(kRows[1]), 1.0F);
    CHECK(weight.change(1, false, change));
    for (std::size_t part = 0; part < 3; ++part) CHECK((weight.hash(part) == weight.expected(part)) == (part != 1));
}
