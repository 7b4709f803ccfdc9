// The base's own values, read again from its files: what is resident after a load, and stays what it was.

#include "engine/model/base_values.hpp"
#include "engine/model/llama_model.hpp"
#include "support/golden.hpp"

#include <catch2/catch.hpp>

#include <random>
#include <string_view>

using namespace attune;

namespace {

std::filesystem::path gguf(const std::string& name) {
    return std::filesystem::path(ATTUNE_TEST_DATA) / "gguf_models" / name;
}

std::unique_ptr<LlamaModel> opened(const std::filesystem::path& path, std::string_view form) {
    const auto [dtype, bits] = weight_form(form).value();
    auto model = load_model(path, {torch::kCPU, dtype, false, bits});
    if (!model) throw std::runtime_error(model.error().message);
    return std::unique_ptr<LlamaModel>(dynamic_cast<LlamaModel*>(model->release()));
}

std::vector<float> rows_of(const BaseValues& values, const std::string& tensor, std::int64_t first, std::int64_t count,
                           std::int64_t columns) {
    std::vector<float> into(static_cast<std::size_t>(count * columns), -1.0F);
    const auto ok = values.read_rows(tensor, first, count, into);
    INFO((ok ? "" : ok.error().message));
    REQUIRE(ok);
    return into;
}

std::vector<float> resident(const WeightPlace& place, std::int64_t first, std::int64_t count) {
    const torch::Tensor rows = place.weight->read_rows(place.part, first, count).contiguous();
    return {rows.const_data_ptr<float>(), rows.const_data_ptr<float>() + rows.numel()};
}

}  // namespace

TEST_CASE("base values are the resident ones, of every tensor, form and dtype", "[engine][model]") {
    std::vector<std::filesystem::path> paths{gguf("llama_gqa_tied/f32.gguf"), gguf("llama_gqa_tied/mixed.gguf"),
                                             gguf("qwen2_bias/q8_0.gguf"), gguf("llama3_rope/q8_0.gguf")};
    for (const std::string& model : golden::models()) paths.push_back(golden::model_folder(model));
    for (const auto& path : paths) {
        for (const char* form : {"f32", "bf16", "auto", "int8", "int4"}) {
            const auto model = opened(path, form);
            const auto values = model->base_values();
            const auto unloaded = open_base_values(path, form);
            REQUIRE(unloaded);
            std::mt19937 random(3);
            for (const auto& [name, place] : model->places()) {
                INFO(path.parent_path().filename() << " " << path.filename() << " " << form << " " << name);
                const std::int64_t rows = place.weight->part(place.part).rows;
                const std::int64_t columns = place.weight->columns();
                REQUIRE(values->has(name));
                CHECK(rows_of(*values, name, 0, rows, columns) == resident(place, 0, rows));
                const auto first = static_cast<std::int64_t>(random() % static_cast<unsigned>(rows));
                const std::int64_t count =
                    1 + static_cast<std::int64_t>(random() % static_cast<unsigned>(rows - first));
                CHECK(rows_of(*values, name, first, count, columns) == resident(place, first, count));
                CHECK(rows_of(**unloaded, name, first, count, columns) == resident(place, first, count));
            }
        }
    }
}

TEST_CASE("base values are the files' also when the resident ones were changed, and when the model is gone",
          "[engine][model]") {
    auto model = opened(golden::model_folder("llama3_rope"), "f32");
    const std::string name = "model.layers.1.self_attn.k_proj.weight";
    const WeightPlace place = model->places().at(name);
    const std::vector<float> before = resident(place, 0, 2);
    place.weight->overwrite_rows(place.part, 0, torch::zeros({2, place.weight->columns()}));
    const auto values = model->base_values();
    CHECK(resident(place, 0, 2) != before);
    CHECK(rows_of(*values, name, 0, 2, place.weight->columns()) == before);
    const std::int64_t columns = place.weight->columns();
    model.reset();
    CHECK(rows_of(*values, name, 0, 2, columns) == before);
}

TEST_CASE("rows and tensors that the base has not are errors", "[engine][model]") {
    const auto values = *open_base_values(golden::model_folder("llama_gqa_tied"), "f32");
    std::vector<float> into(64);
    CHECK(values->read_rows("model.norm.weight", 0, 1, into));
    const auto absent = values->read_rows("lm_head.weight", 0, 1, into);
    REQUIRE_FALSE(absent);
    CHECK(absent.error().code == Errc::not_found);
    CHECK_FALSE(values->has("lm_head.weight"));
    CHECK_FALSE(values->read_rows("model.norm.weight", 1, 1, into));
    CHECK_FALSE(values->read_rows("model.embed_tokens.weight", 320, 1, into));
    CHECK_FALSE(values->read_rows("model.embed_tokens.weight", -1, 1, into));
    CHECK_FALSE(values->read_rows("model.embed_tokens.weight", 0, 2, into));
    CHECK(values->read_rows("model.embed_tokens.weight", 319, 1, into));
}

TEST_CASE("values round as matrices are served", "[engine][model]") {
    const auto path = golden::model_folder("llama_gqa_tied");
    std::vector<float> values{1.0F, 1.001F, 1.0F / 3};
    (*open_base_values(path, "f32"))->round_as_served(values);
    CHECK(values[1] == 1.001F);
    (*open_base_values(path, "bf16"))->round_as_served(values);
    CHECK(values == std::vector<float>{1.0F, 1.0F, 0.333984375F});

    // What a quantised table holds of a row is what it holds of it again.
    const auto eight = *open_base_values(path, "int8");
    std::vector<float> row(64);
    REQUIRE(eight->read_rows("model.embed_tokens.weight", 7, 1, row));
    std::vector<float> exact(64);
    REQUIRE((*open_base_values(path, "f32"))->read_rows("model.embed_tokens.weight", 7, 1, exact));
    CHECK(exact != row);
    eight->round_as_served(exact);
    CHECK(exact == row);
}
