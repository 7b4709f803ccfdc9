#include "engine/model/rope.hpp"

#include <nlohmann/json.hpp>

#include <fstream>

#include <catch2/catch.hpp>

using namespace attune;

TEST_CASE("rotary frequencies and angles are those of transformers", "[engine][model][rope]") {
    std::ifstream file(ATTUNE_ROPE_EXPECTED);
    REQUIRE(file);
    const nlohmann::json expected = nlohmann::json::parse(file);
    REQUIRE(expected.at("cases").size() >= 12);
    for (const nlohmann::json& entry : expected.at("cases")) {
        CAPTURE(entry.at("name").get<std::string>());
        const auto config = parse_model_config(entry.at("config").dump());
        REQUIRE(config);
        CHECK(config->rope.attention_factor == Approx(entry.at("attention_factor").get<double>()).epsilon(1e-6));

        const int head_dim = config->shape.head_dim;
        const torch::Tensor frequencies = inverse_frequencies(config->rope, head_dim);
        const auto wanted = torch::tensor(entry.at("inv_freq").get<std::vector<float>>());
        // A few units in the last place: other machines choose other vector code for pow.
        CHECK(((frequencies - wanted).abs() / wanted).max().item<float>() < 5e-7F);

        const Rope rope(config->rope, head_dim, torch::kCPU);
        const auto positions = entry.at("positions").get<std::vector<std::int64_t>>();
        const auto [cos, sin] = rope.angles(torch::tensor(positions));
        for (std::size_t row = 0; row < positions.size(); ++row) {
            const auto at = static_cast<std::int64_t>(row);
            // One unit in the last place of an angle of 4095 radians is 2.4e-4.
            const float tolerance = 2e-6F + 1.3e-7F * static_cast<float>(positions[row]);
            const auto cosines = torch::tensor(entry.at("cos").at(row).get<std::vector<float>>());
            const auto sines = torch::tensor(entry.at("sin").at(row).get<std::vector<float>>());
            CHECK((cos[at] - cosines).abs().max().item<float>() <= tolerance);
            CHECK((sin[at] - sines).abs().max().item<float>() <= tolerance);
        }
    }
}
