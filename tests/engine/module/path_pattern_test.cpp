#include "engine/module/path_pattern.hpp"

#include <catch2/catch.hpp>

#include <string>

namespace attune {
namespace {

constexpr const char* kPath = "model.layers.12.self_attn.q_proj";

bool full(const std::string& pattern, const std::string& path = kPath) {
    const auto compiled = PathPattern::compile(pattern);
    INFO(pattern);
    REQUIRE(compiled);
    return compiled->full_match(path);
}

std::string fault(const std::string& pattern) {
    const auto compiled = PathPattern::compile(pattern);
    return compiled ? "" : compiled.error().message;
}

TEST_CASE("patterns match whole module paths as Python's re does", "[engine][module]") {
    CHECK(full(R"(model\.layers\.\d+\.self_attn\.(q|k)_proj)"));
    CHECK(full(R"(model\.layers\.1[0-2]\.(self_attn\.[qk]_proj|mlp\.down_proj))"));
    CHECK_FALSE(full(R"(model\.layers\.[12]\.(self_attn\.[qk]_proj|mlp\.down_proj))"));
    CHECK(full(".*q_proj"));
    CHECK_FALSE(full("q_proj"));
    CHECK(full("^model.*_proj$"));
    CHECK(full(R"(.*\.(?:self_attn|mlp)\.(?P<name>\w+_proj))"));
    CHECK(full(R"(.*?layers\.(\d{1,2})\..*)"));
    CHECK_FALSE(full(R"(.*layers\.(\d{3,})\..*)"));
    CHECK(full(R"(model(\.[a-z_]+|\.\d+){4})"));
    CHECK(full(R"([^ ]+)"));
    CHECK(full(R"(.*\bq_proj)"));
    CHECK_FALSE(full(R"(.*\bproj)"));
    CHECK(full(R"(.*self.attn.*|nothing)"));
    CHECK(full("", ""));
    CHECK(full("a||b", ""));
    CHECK(full("x{,2}y{2}", "xxyy"));
    CHECK(full("x{a", "x{a"));
    CHECK(full(R"([\]a-c\-]+)", "]b-"));
    CHECK(full("[]a]+", "]a"));
}

TEST_CASE("lookahead leaves out what it names", "[engine][module]") {
    CHECK(full("^(?!.*vision).*(?:q_proj|v_proj)"));
    CHECK_FALSE(full("^(?!.*vision).*(?:q_proj|v_proj)", "vision.layers.1.q_proj"));
    CHECK(full(R"((?=.*\.12\.).*_proj)"));
    CHECK_FALSE(full(R"((?=.*\.13\.).*_proj)"));
}

TEST_CASE("match() needs the start only", "[engine][module]") {
    const auto compiled = PathPattern::compile("model.layers");
    REQUIRE(compiled);
    CHECK(compiled->match(kPath));
    CHECK_FALSE(compiled->match("xmodel.layers"));
    CHECK_FALSE(compiled->full_match(kPath));
}

TEST_CASE("patterns that explode elsewhere end at once", "[engine][module][E4]") {
    const std::string path(60, 'a');
    CHECK_FALSE(full("(a+)+b", path));
    CHECK_FALSE(full("(a|a)*(a|aa)+b", path));
    CHECK_FALSE(full("((a*)*)*b", path));
    CHECK_FALSE(full("(a?){60}a{60}b", path));
    CHECK(full("(a*)*", path));
}

TEST_CASE("what is not supported in a pattern is named", "[engine][module]") {
    CHECK(fault(R"((a)\1)") == R"(pattern "(a)\\1" uses a back-reference, which is not supported)");
    CHECK(fault("(?<=a)b") == R"(pattern "(?<=a)b" uses "(?<=", which is not supported)");
    CHECK(fault("(?i)b").find("which is not supported") != std::string::npos);
    CHECK(fault("(?=a(?!b))").find("lookahead inside a lookahead") != std::string::npos);
    CHECK(fault("a*+").find("possessive") != std::string::npos);
    CHECK(fault("a**").find("repeats a repeat") != std::string::npos);
    CHECK(fault("*a").find("repeats nothing") != std::string::npos);
    CHECK(fault("(a").find("without its \")\"") != std::string::npos);
    CHECK(fault("a)").find("too many") != std::string::npos);
    CHECK(fault("[a").find("without its \"]\"") != std::string::npos);
    CHECK(fault("[b-a]").find("backwards") != std::string::npos);
    CHECK(fault("a{3,2}").find("below its start") != std::string::npos);
    CHECK(fault("a{2000}").find("repeats too often") != std::string::npos);
    CHECK(fault("((((a{99}){99}){99}){99})").find("too large") != std::string::npos);
    CHECK(fault(std::string(200, '(')).find("nested too deeply") != std::string::npos);
    CHECK(fault(std::string(5000, 'a')).find("the limit is 4096") != std::string::npos);
    CHECK(fault("a\\").find("ends in a") != std::string::npos);
    CHECK(fault("\\y").find("unknown escape") != std::string::npos);
}

}  // namespace
}  // namespace attune
