#include "actors/resolve_modules.hpp"

#include <catch2/catch.hpp>

#include <map>

using namespace attune;

namespace {

struct Table {
    std::map<std::string, ModuleHeader> rows;
    std::map<std::string, std::string> generations;

    ModuleHeader& operator[](const std::string& name) { return rows[name]; }
    Result<ResolvedModules> resolve(const std::vector<WeightedModule>& asked, int limit = 8) const {
        return resolve_modules(asked, limit, [this](const std::string& name) -> Result<KnownModule> {
            const auto row = rows.find(name);
            if (row == rows.end()) return make_error(Errc::unknown_model, "`" + name + "` does not exist");
            const auto generation = generations.find(name);
            return KnownModule{&row->second, generation == generations.end() ? "" : generation->second};
        });
    }
    std::string order_of(const std::vector<WeightedModule>& asked) const {
        const auto resolved = resolve(asked);
        if (!resolved) return resolved.error().message;
        std::string text;
        for (const WeightedModule& one : resolved->modules)
            text += one.name + ":" + std::to_string(static_cast<int>(one.weight * 100)) + " ";
        return text;
    }
};

bool says(const Result<ResolvedModules>& result, const std::string& word) {
    return !result && result.error().message.find(word) != std::string::npos;
}

}  // namespace

TEST_CASE("modules act required ones first, then by order, then by name", "[actors][resolve]") {
    Table table;
    table["a"].order = 5;
    table["b"].order = 5;
    table["early"].order = -1;
    table["late"].order = 90;
    table["follow"].needs = {{"late", ""}};
    CHECK(table.order_of({{"b", 1.0}, {"a", 1.0}, {"early", 1.0}}) == "early:100 a:100 b:100 ");
    CHECK(table.order_of({{"follow", 0.5}}) == "late:100 follow:50 ");
    CHECK(table.order_of({{"follow", 1.0}, {"late", -0.5}}) == "late:-50 follow:100 ");
    CHECK(table.order_of({{"follow", 0.0}}) == "follow:0 ");
}

TEST_CASE("a composition stands for its members with its weight times theirs", "[actors][resolve]") {
    Table table;
    table["a"].order = 2;
    table["b"].order = 1;
    table["duo"].members = {{"a", 0.5}, {"b", -1.0}};
    table["duo"].combine = Combine::parallel;
    table["outer"].members = {{"duo", 1.0}};
    table["heavy"].members = {{"a", 100.0}};
    table["torn"].members = {{"a", 1.0}, {"gone", 1.0}};
    CHECK(table.order_of({{"duo", 0.5}}) == "b:-50 a:25 ");
    CHECK(table.resolve({{"duo", 1.0}})->combine == Combine::parallel);
    CHECK_FALSE(table.resolve({{"a", 1.0}})->combine.has_value());
    CHECK(table.order_of({{"duo", 1.0}, {"a", 0.5}}) == "b:-100 a:50 ");
    CHECK(says(table.resolve({{"duo", 1.0}, {"a", 1.0}}), "`a` is named twice"));
    CHECK(says(table.resolve({{"outer", 1.0}}), "`duo`"));
    CHECK(says(table.resolve({{"heavy", 2.0}}), "`a`"));
    CHECK(says(table.resolve({{"torn", 1.0}}), "`gone`"));
}

TEST_CASE("requirements that cannot be met are refused by name", "[actors][resolve]") {
    Table table;
    table["a"].needs = {{"b", ""}};
    table["b"].needs = {{"c", ""}};
    table["c"].needs = {{"a", ""}};
    table["lonely"].needs = {{"nobody", ""}};
    table["code"].version = "1.1.0";
    table["pins"].needs = {{"code", "1.2.0"}};
    table["fits"].needs = {{"code", "1.1.0"}};
    const std::string generation(64, 'f');
    table["exact"].needs = {{"code", generation}};
    const auto circle = table.resolve({{"a", 1.0}});
    CHECK((says(circle, "`a`") && says(circle, "`b`") && says(circle, "`c`")));
    const auto missing = table.resolve({{"lonely", 1.0}});
    CHECK((says(missing, "`lonely`") && says(missing, "`nobody`")));
    CHECK(missing.error().code == Errc::unknown_model);
    const auto pinned = table.resolve({{"pins", 1.0}});
    CHECK((says(pinned, "1.2.0") && says(pinned, "1.1.0")));
    CHECK(bool(table.resolve({{"fits", 1.0}})));
    CHECK(table.resolve({{"exact", 1.0}})->unchecked.size() == 1);
    table.generations["code"] = generation;
    CHECK(table.resolve({{"exact", 1.0}})->unchecked.empty());
    table.generations["code"] = std::string(64, '0');
    CHECK(says(table.resolve({{"exact", 1.0}}), generation));
}

TEST_CASE("members and required modules count against the limit", "[actors][resolve]") {
    Table table;
    for (int i = 0; i < 20; ++i) table["m" + std::to_string(i)].needs = {{"m" + std::to_string(i + 1), ""}};
    table["m20"];
    CHECK(table.resolve({{"m17", 1.0}}, 4)->modules.size() == 4);
    CHECK(says(table.resolve({{"m16", 1.0}}, 4), "at most 4"));
    CHECK(says(table.resolve({{"m0", 1.0}}, 8), "at most 8"));
}
