#include "config/routes_file.hpp"
#include "config/settings_file.hpp"

#include <toml_parser.hpp>

#include <catch2/catch.hpp>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <string>

using namespace attune;

namespace {

const std::filesystem::path kFolder = ATTUNE_CONFIG_FOLDER;

}  // namespace

TEST_CASE("the shipped attune.toml holds every setting and no other", "[config][shipped]") {
    const toml::table shipped = toml::parse_file((kFolder / "attune.toml").string());
    std::size_t known_keys = 0;
    for (const SettingInfo& setting : known_settings()) {
        INFO("[" << setting.section << "] " << setting.key);
        CHECK(shipped[setting.section][setting.key].node() != nullptr);
        ++known_keys;
    }
    std::size_t shipped_keys = 0;
    for (const auto& [section, keys] : shipped) shipped_keys += keys.as_table()->size();
    CHECK(shipped_keys == known_keys);
}

TEST_CASE("every value in the shipped attune.toml is the default", "[config][shipped]") {
    const auto settings = read_settings(kFolder / "attune.toml");
    if (!settings) FAIL(settings.error().message);
    CHECK(show_settings(*settings) == show_settings(Settings{}));
}

TEST_CASE("every setting in the shipped attune.toml follows a comment or its neighbour", "[config][shipped]") {
    std::ifstream file(kFolder / "attune.toml");
    std::string line;
    std::string before;
    int settings = 0;
    while (std::getline(file, line)) {
        const bool is_setting = !line.empty() && std::islower(static_cast<unsigned char>(line[0])) != 0;
        if (is_setting) {
            INFO(line);
            CHECK_FALSE(before.empty());
            CHECK(before[0] != '[');
            ++settings;
        }
        before = line;
    }
    CHECK(settings == static_cast<int>(known_settings().size()));
}

TEST_CASE("every sample is a valid settings file whose routes exist and are valid", "[config][shipped]") {
    int samples = 0;
    for (const auto& entry : std::filesystem::directory_iterator(kFolder / "samples")) {
        INFO(entry.path().filename().string());
        const auto settings = read_settings(entry.path());
        if (!settings) FAIL(settings.error().message);
        CHECK(show_settings(*settings) != show_settings(Settings{}));
        if (!settings->routing.file.empty()) CHECK(read_routes(settings->routing.file));
        ++samples;
    }
    CHECK(samples >= 2);
}

TEST_CASE("the sample of three pinned modules keeps room for two more", "[config][shipped]") {
    const auto settings = read_settings(kFolder / "samples" / "three_pinned_two_on_demand.toml");
    REQUIRE(settings);
    CHECK(settings->modules.pinned.size() == 3);
    CHECK(settings->modules.min_resident == 5);
    CHECK(settings->modules.roots.size() == 1);
}

TEST_CASE("the shipped routes.toml sends English and Chinese words to the demo's modules", "[config][shipped]") {
    const auto routes = read_routes(kFolder / "routes.toml");
    if (!routes) FAIL(routes.error().message);
    REQUIRE(routes->rules.size() == 2);
    CHECK(routes->rules[0].modules.at(0).name == "code");
    CHECK(routes->rules[1].modules.at(0).name == "legal");
    REQUIRE(routes->default_modules.size() == 1);
    CHECK(routes->default_modules[0].name == "sentiment");
}
