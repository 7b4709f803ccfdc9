#include "config/settings_file.hpp"

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

using namespace attune;

namespace {

Result<Settings> parsed(const std::string& text) { return parse_settings(text, "attune.toml", "/etc/attune"); }

/// The message of a text that must be refused.
std::string refusal(const std::string& text) {
    const auto settings = parsed(text);
    REQUIRE_FALSE(settings);
    return settings.error().message;
}

std::string refused_override(const std::string& assignment) {
    Settings settings;
    const auto changed = override_setting(settings, assignment);
    REQUIRE_FALSE(changed);
    return changed.error().message;
}

using Catch::Matchers::Contains;

}  // namespace

TEST_CASE("an empty settings file leaves every default", "[config][settings]") {
    const auto settings = parsed("");
    REQUIRE(settings);
    CHECK(show_settings(*settings) == show_settings(Settings{}));
}

TEST_CASE("values of every type are read into their settings", "[config][settings]") {
    const auto settings = parsed(R"(
[server]
host = "0.0.0.0"
port = 0
hosts = ["a.example", "b.example"]
drain_s = 2.5
idle_timeout_s = 10
[modules]
allow_unverified_base = true
[cold]
policy = "wait"
[log]
level = "debug"
[routing]
default = "sentiment"
)");
    REQUIRE(settings);
    CHECK(settings->server.host == "0.0.0.0");
    CHECK(settings->server.port == 0);
    CHECK(settings->server.hosts == std::vector<std::string>{"a.example", "b.example"});
    CHECK(settings->server.drain_s == 2.5);
    CHECK(settings->server.idle_timeout_s == 10);
    CHECK(settings->modules.allow_unverified_base);
    CHECK(settings->cold.policy == ColdPolicy::wait);
    CHECK(settings->log.level == LogLevel::debug);
    CHECK(settings->routing.default_module == "sentiment");
}

TEST_CASE("a size is an integer of bytes or a text with a unit", "[config][settings]") {
    const std::vector<std::pair<std::string, std::uint64_t>> cases = {
        {"1048576", 1048576},        {"\"1048576\"", 1048576},  {"\"1MiB\"", 1048576},  {"\"4 GiB\"", 4ull << 30},
        {"\"2TiB\"", 2ull << 40},    {"\"3000kB\"", 3000000},   {"\"12MB\"", 12000000}, {"\"1GB\"", 1000000000},
        {"\"2048KiB\"", 2ull << 20}, {"\"2097152B\"", 2 << 20},
    };
    for (const auto& [text, bytes] : cases) {
        INFO(text);
        const auto settings = parsed("[modules]\ndevice_bytes = " + text);
        REQUIRE(settings);
        CHECK(settings->modules.device_bytes == bytes);
    }
}

TEST_CASE("a size that is no size is refused with what is allowed", "[config][settings]") {
    for (const std::string text : {"\"256 megs\"", "\"\"", "\"MiB\"", "-1", "1.5", "\"1.5GiB\"", "true",
                                   "\"99999999999999999999\"", "\"99999999999TiB\"", "\"-4MiB\"", "12"}) {
        INFO(text);
        CHECK_THAT(refusal("[modules]\ndevice_bytes = " + text),
                   Contains("[modules] device_bytes = ") && Contains("like \"256MiB\", from 1MiB"));
    }
}

TEST_CASE("kv_bytes may be zero, which means chosen at start, but not tiny", "[config][settings]") {
    CHECK(parsed("[model]\nkv_bytes = 0"));
    CHECK_FALSE(parsed("[model]\nkv_bytes = 1"));
}

TEST_CASE("an unknown key is named with its line, its value and the key that was meant", "[config][settings]") {
    const std::string message = refusal("[server]\nport = 1\nmax_conections = 7\n");
    CHECK_THAT(message, Contains("attune.toml, line 3: ") && Contains("[server] max_conections = 7") &&
                            Contains("did you mean max_connections?"));
}

TEST_CASE("a key of another section is sent to its section", "[config][settings]") {
    CHECK_THAT(refusal("[server]\nlow_watermark = 0.5\n"), Contains("it belongs to [trigger]"));
}

TEST_CASE("an unknown section is named with the section that was meant", "[config][settings]") {
    CHECK_THAT(refusal("[sever]\nport = 1\n"), Contains("unknown section [sever]; did you mean [server]?"));
    CHECK_THAT(refusal("port = 1\n"), Contains("unknown section [port]"));
    CHECK_THAT(refusal("server = 1\n"), Contains("[server] is a section"));
}

TEST_CASE("a value outside of its range is refused with the range", "[config][settings]") {
    const std::vector<std::pair<std::string, std::string>> cases = {
        {"[server]\nport = 65536", "an integer from 0 to 65535"},
        {"[server]\nport = -1", "an integer from 0 to 65535"},
        {"[server]\nport = 80.0", "an integer from 0 to 65535"},
        {"[server]\nport = \"80\"", "an integer from 0 to 65535"},
        {"[server]\nthreads = 0", "an integer from 1 to 256"},
        {"[server]\nrequest_timeout_s = 61", "a number from 0.1 to 60"},
        {"[server]\ndrain_s = nan", "a number from 0 to 86400"},
        {"[server]\ndrain_s = inf", "a number from 0 to 86400"},
        {"[server]\nhost = \"\"", "an address or a host name"},
        {"[server]\ncors_origins = [\"example.org\"]", "a list of origins"},
        {"[server]\ncors_origins = \"https://example.org\"", "a list of origins"},
        {"[server]\ncors_origins = [1]", "a list of origins"},
        {"[model]\nid = \"auto\"", "a name without \"/\", not \"auto\""},
        {"[model]\nid = \"a/b\"", "a name without \"/\""},
        {"[model]\ndevice = \"gpu\"", "\"auto\", \"cpu\", \"cuda:N\""},
        {"[model]\ndevice = \"cuda\"", "\"auto\", \"cpu\", \"cuda:N\""},
        {"[model]\ndevice = \"cuda:x\"", "\"auto\", \"cpu\", \"cuda:N\""},
        {"[modules]\nallow_unverified_base = 1", "true or false"},
        {"[modules]\npinned = [\"\"]", "a list of module names"},
        {"[cold]\npolicy = \"fast\"", "\"wait\", \"fallback\", \"upgrade\""},
        {"[cold]\npolicy = 3", "\"wait\", \"fallback\", \"upgrade\""},
        {"[limits]\nn = 2000", "an integer from 1 to 1024"},  // what the engine takes
        {"[log]\nlevel = \"loud\"", "\"trace\", \"debug\", \"info\", \"warn\", \"error\", \"off\""},
        {"[trigger]\nhigh_watermark = 1.5", "a number from 0 to 1"},
    };
    for (const auto& [text, allowed] : cases) {
        INFO(text);
        const auto settings = parsed(text);
        REQUIRE_FALSE(settings);
        CHECK(settings.error().code == Errc::invalid_argument);
        CHECK_THAT(settings.error().message, Contains("attune.toml, line 2: ") && Contains("allowed: " + allowed));
    }
}

TEST_CASE("letters beyond ASCII stand in strings and comments only", "[config][settings]") {
    for (const char* good : {"# Größe\n[model]\nid = \"größe\"\n", "[model]\nid = 'größe'  # é\n",
                             "[model]\nid = \"\"\"a \\\n  ü\"\"\"\n", "[model]\nid = \"a\\\"é\"\n"})
        CHECK(parsed(good));
    CHECK_THAT(refusal("[model]\n\nid = \"a\"\xC3\xA9\n"), Contains("line 3: not valid TOML: a letter beyond ASCII"));
    CHECK_THAT(refusal("# é\n\xE3\x81\x82 = 1\n"), Contains("line 2: not valid TOML: a letter beyond ASCII"));
    for (const char* quote : {"\"\"\"", "\'\'\'"})
        CHECK_THAT(refusal("a = { b = " + std::string(quote) + "x" + quote + quote[0] + ", \xC3\xA9 = 1 }\n"),
                   Contains("line 1: not valid TOML: a letter beyond ASCII"));
}

TEST_CASE("ill-formed UTF-8 is refused with its line, wherever it stands", "[config][settings]") {
    for (const std::string bad : {"\xFF", "\xC3", "\xED\xA0\x80", "\xC0\x80", "\xF4\x90\x80\x80"}) {
        CHECK_THAT(refusal("[model]\n# " + bad + "\n"), Contains("line 2: not valid TOML: ill-formed UTF-8"));
        CHECK_THAT(refusal("[model]\n\nid = \"a" + bad + "\"\n"), Contains("line 3: not valid TOML: ill-formed UTF-8"));
        CHECK_THAT(refusal("[model]\nid = \"\"\"\n" + bad), Contains("line 3: not valid TOML: ill-formed UTF-8"));
        CHECK_THAT(refusal(bad), Contains("line 1: not valid TOML: ill-formed UTF-8"));
    }
}

TEST_CASE("a fault of TOML itself is named with its line", "[config][settings]") {
    CHECK_THAT(refusal("[server]\nport = = 1\n"), Contains("attune.toml, line 2: not valid TOML"));
    // Letters in what the parser takes for one word.
    for (const char* word : {"a = 2z[[\"a\xC4\xBA<\n", "a = 2=\"\xC3\xA9\"\n", "a = [1, 2=\"\xE3\x81\x82\"]\n"})
        CHECK_THAT(refusal(word), Contains("attune.toml, line 1: not valid TOML"));
    for (const char* broken :
         {"[ = [\"a\"]\n", "[[ = 1\n", "a = { = 1 }\n", "a. = 1\n", "[a. = 1]\n", "a = { b. = 1 }\n"})
        CHECK_THAT(refusal(broken), Contains("attune.toml, line 1: not valid TOML"));
    CHECK_THAT(refusal("[server]\nport = 1\nport = 2\n"), Contains("attune.toml, line 3: not valid TOML"));
}

TEST_CASE("lists and tables of any numbers are shown on one line", "[config][settings]") {
    CHECK_THAT(
        refusal("[cold]\npolicy = [0.0625, -inf, nan, -9223372036854775808, [\"代\", []], { a = 1, \"b c\" = {} }]"),
        Contains("policy = [0.0625, -inf, nan, -9223372036854775808, [\"代\", []], { a = 1, \"b c\" = {} }]"));
}

TEST_CASE("a huge value does not flood the message", "[config][settings]") {
    const std::string message = refusal("[cold]\npolicy = \"" + std::string(100000, 'x') + "\"");
    CHECK(message.size() < 400);
}

TEST_CASE("control characters never get into a name or a path", "[config][settings]") {
    CHECK_FALSE(parsed("[model]\nid = \"a\\nb\""));
    CHECK_FALSE(parsed("[model]\npath = \"a\\u0000b\""));
    CHECK_FALSE(parsed("[modules]\nroots = [\"a\\u0000b\"]"));
}

TEST_CASE("relative paths start from the file's folder", "[config][settings]") {
    const auto settings = parsed(R"(
[model]
path = "models/smol"
[server]
keys_file = "../keys.toml"
[modules]
roots = ["modules", "/srv/modules"]
[routing]
file = "routes.toml"
)");
    REQUIRE(settings);
    CHECK(settings->model.path == "/etc/attune/models/smol");
    CHECK(settings->server.keys_file == "/etc/keys.toml");
    REQUIRE(settings->modules.roots.size() == 2);
    CHECK(settings->modules.roots[0] == "/etc/attune/modules");
    CHECK(settings->modules.roots[1] == "/srv/modules");
    CHECK(settings->routing.file == "/etc/attune/routes.toml");
}

TEST_CASE("an empty path stays empty instead of becoming the folder", "[config][settings]") {
    const auto settings = parsed("[routing]\nfile = \"\"\n[server]\nkeys_file = \"\"\n[model]\npath = \"\"\n");
    REQUIRE(settings);
    CHECK(settings->routing.file.empty());
    CHECK(settings->server.keys_file.empty());
    CHECK(settings->model.path.empty());
}

TEST_CASE("an override takes words without quotes where the setting is a text", "[config][override]") {
    Settings settings;
    REQUIRE(override_setting(settings, "cold.policy=fallback"));
    REQUIRE(override_setting(settings, "model.id=123"));
    REQUIRE(override_setting(settings, "server.host=::1"));
    REQUIRE(override_setting(settings, "log.format=\"json\""));
    CHECK(settings.cold.policy == ColdPolicy::fallback);
    CHECK(settings.model.id == "123");
    CHECK(settings.server.host == "::1");
    CHECK(settings.log.format == "json");
}

TEST_CASE("an override takes numbers, sizes and booleans as TOML has them", "[config][override]") {
    Settings settings;
    REQUIRE(override_setting(settings, "server.port=0"));
    REQUIRE(override_setting(settings, "server.drain_s=0.5"));
    REQUIRE(override_setting(settings, "modules.device_bytes=64MiB"));
    REQUIRE(override_setting(settings, "modules.host_bytes=\"2GiB\""));
    REQUIRE(override_setting(settings, "modules.allow_unverified_base=true"));
    CHECK(settings.server.port == 0);
    CHECK(settings.server.drain_s == 0.5);
    CHECK(settings.modules.device_bytes == 64ull << 20);
    CHECK(settings.modules.host_bytes == 2ull << 30);
    CHECK(settings.modules.allow_unverified_base);
}

TEST_CASE("an override of a list is a TOML list or words between commas", "[config][override]") {
    Settings settings;
    REQUIRE(override_setting(settings, "modules.pinned=code,legal"));
    CHECK(settings.modules.pinned == std::vector<std::string>{"code", "legal"});
    REQUIRE(override_setting(settings, "modules.pinned=[\"a,b\"]"));
    CHECK(settings.modules.pinned == std::vector<std::string>{"a,b"});
    REQUIRE(override_setting(settings, "modules.pinned=one"));
    CHECK(settings.modules.pinned == std::vector<std::string>{"one"});
    REQUIRE(override_setting(settings, "modules.pinned="));
    CHECK(settings.modules.pinned.empty());
}

TEST_CASE("a wrong override names key, value and what is allowed", "[config][override]") {
    CHECK_THAT(refused_override("server.port=99999"), Contains("[server] port = 99999") && Contains("65535"));
    CHECK_THAT(refused_override("server.prot=1"), Contains("did you mean port?"));
    CHECK_THAT(refused_override("sever.port=1"), Contains("did you mean [server]?"));
    CHECK_THAT(refused_override("server.port"), Contains("section.key=value"));
    CHECK_THAT(refused_override("port=1"), Contains("section.key=value"));
    CHECK_THAT(refused_override("=.x"), Contains("section.key=value"));
    CHECK_THAT(refused_override("server.port="), Contains("65535"));
}

TEST_CASE("a line break in an override cannot smuggle in a second setting", "[config][override]") {
    Settings settings;
    CHECK_FALSE(override_setting(settings, "server.port=1\nthreads=4"));
    CHECK(settings.server.threads == 1);
}

TEST_CASE("a refused override changes nothing", "[config][override]") {
    Settings settings;
    CHECK_FALSE(override_setting(settings, "modules.pinned=[\"good\", \"\"]"));
    CHECK(settings.modules.pinned.empty());
}

TEST_CASE("watermarks in the wrong order are refused after file and overrides", "[config][settings]") {
    const std::vector<std::string> overrides = {"trigger.low_watermark=0.95"};
    const auto settings = read_settings({}, overrides);
    REQUIRE_FALSE(settings);
    CHECK_THAT(settings.error().message, Contains("low_watermark"));
    const std::vector<std::string> both = {"trigger.low_watermark=0.95", "trigger.high_watermark=0.97"};
    CHECK(read_settings({}, both));
}

TEST_CASE("later overrides win over earlier ones and over the file", "[config][settings]") {
    const auto folder = std::filesystem::temp_directory_path() / "attune_settings_test";
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "mine.toml") << "[server]\nport = 1\nthreads = 2\n[model]\npath = \"m\"\n";
    const std::vector<std::string> overrides = {"server.port=2", "server.port=3"};
    const auto settings = read_settings(folder / "mine.toml", overrides);
    std::filesystem::remove_all(folder);
    REQUIRE(settings);
    CHECK(settings->server.port == 3);
    CHECK(settings->server.threads == 2);
    CHECK(settings->model.path == folder / "m");
}

TEST_CASE("a missing settings file is refused by its name and without its folder", "[config][settings]") {
    const auto settings = read_settings("/no/such/folder/mine.toml");
    REQUIRE_FALSE(settings);
    CHECK(settings.error().code == Errc::not_found);
    CHECK_THAT(settings.error().message, Contains("mine.toml") && !Contains("/no/such"));
}

TEST_CASE("a folder is no settings file", "[config][settings]") {
    const auto settings = read_settings(std::filesystem::temp_directory_path());
    REQUIRE_FALSE(settings);
    CHECK_THAT(settings.error().message, Contains("not a file"));
}

TEST_CASE("shown settings read back as the same settings", "[config][settings]") {
    Settings settings;
    for (const char* assignment :
         {"server.port=1234", "server.drain_s=0.25", "cold.policy=wait", "modules.pinned=a\"b,c\\d",
          "modules.device_bytes=5000001", "model.id=模型", "log.level=off", "modules.roots=/a,/b"}) {
        REQUIRE(override_setting(settings, assignment));
    }
    const auto again = parsed(show_settings(settings));
    REQUIRE(again);
    CHECK(show_settings(*again) == show_settings(settings));
    CHECK(again->modules.pinned == settings.modules.pinned);
}
