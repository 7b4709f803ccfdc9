// modules.swap = strict: load_inplace refuses what PEFT's hotswap refuses; relaxed, any module may follow any other.

#include "house_fixture.hpp"

#include <catch2/catch.hpp>

using namespace attune;

namespace {

class SwapFixture : public HouseFixture {
public:
    SwapFixture() {
        settings.modules.swap = "strict";
        disk["lib/now"] = FakeSource{"gen-now"};
        disk["lib/now"].swap = lora({"q", "v"});
        disk["lib/same"] = FakeSource{"gen-same"};
        disk["lib/same"].swap = lora({"q", "v"});
        disk["lib/fewer"] = FakeSource{"gen-fewer"};
        disk["lib/fewer"].swap = lora({"v"});
        disk["lib/more"] = FakeSource{"gen-more"};
        disk["lib/more"].swap = lora({"q", "v", "w"});
        disk["lib/dora"] = FakeSource{"gen-dora"};
        disk["lib/dora"].swap = lora({"q", "v"}, "True");
        disk["lib/ia3"] = FakeSource{"gen-ia3"};
        disk["lib/ia3"].swap = {"IA3", {}, {"q"}};
    }
    static SwapFacts lora(std::vector<std::string> keys, const std::string& dora = "False") {
        return {"LORA", {{"use_dora", dora}}, std::move(keys)};
    }
    std::shared_ptr<Load> swap(const std::string& path) {
        auto order = load("m", path, /*inplace=*/true);
        run();
        return order;
    }
    void begin() {
        start();
        const auto first = load("m", "lib/now");
        run();
        REQUIRE(first->ok());
    }
    void check_clean() {
        run();
        CHECK(cache().line.empty());
        CHECK(cache().arriving.empty());
        CHECK(cache().copies.size() == 1);
        CHECK(cache().copies.begin()->second->leases == 0);
        CHECK(cache().host_used == *live_bytes);
        CHECK(engine->broken_rules.empty());
    }
};

std::string text_of(const HouseFixture::Load& load) { return load.answer->error().message; }

}  // namespace

TEST_CASE_METHOD(SwapFixture, "rows 1, 5 and 6, strict: LoRAs with the same tensors or fewer take each other's place",
                 "[actors][hotswap]") {
    begin();
    REQUIRE(swap("lib/same")->ok());
    CHECK(module("m")->generation == "gen-same");
    REQUIRE(swap("lib/fewer")->ok());
    CHECK(module("m")->generation == "gen-fewer");
    CHECK(ask("m")->text == "mmm");
    REQUIRE(swap("lib/same")->ok());  // the places of the first one are still there
    CHECK(swap("lib/more")->code() == Errc::invalid_module);
    check_clean();
}

TEST_CASE_METHOD(SwapFixture,
                 "rows 6, 7, 9 and 10, strict: what PEFT refuses is refused in its words and nothing has moved",
                 "[actors][hotswap]") {
    begin();
    CHECK(ask("m")->ok());
    const std::vector<std::pair<std::string, std::string>> rows{
        {"lib/more", "Hot swapping the adapter did not succeed, unexpected keys found: w."},
        {"lib/ia3", "Incompatible PEFT types found: LORA and IA3"},
        {"lib/dora", "Configs are incompatible: for use_dora, False != True"}};
    for (const auto& [path, text] : rows) {
        const auto refused = swap(path);
        CHECK(refused->code() == Errc::invalid_module);
        CHECK(text_of(*refused) == text);
        CHECK(module("m")->generation == "gen-now");
        CHECK(ask("m")->ok());
        check_clean();
    }
    engine->merged_slots = {cache().names.at("m")->copy->slot};
    CHECK(ask("m")->ok());
    const auto merged = swap("lib/same");
    CHECK(merged->code() == Errc::conflict);
    CHECK(text_of(*merged).starts_with("Cannot hot-swap adapter 'm'"));
    CHECK(text_of(*merged).find("currently merged") != std::string::npos);
    engine->merged_slots.clear();
    CHECK(ask("m")->ok());
    CHECK(swap("lib/same")->ok());
    check_clean();
}

TEST_CASE_METHOD(SwapFixture, "row 11, strict: that another module is merged keeps nobody from a swap",
                 "[actors][hotswap]") {
    begin();
    REQUIRE((load("n", "lib/ia3"), run(), module("n")));
    CHECK(ask("n")->ok());
    CHECK(ask("m")->ok());
    engine->merged_slots = {cache().names.at("n")->copy->slot};
    CHECK(ask("n")->ok());
    CHECK(swap("lib/same")->ok());
    CHECK(module("m")->generation == "gen-same");
    CHECK(ask("m")->text == "mmm");
    CHECK(ask("n")->text == "nnn");
}

TEST_CASE_METHOD(SwapFixture, "row 8, strict: two adapters of one type that is no LoRA are not swapped",
                 "[actors][hotswap]") {
    disk["lib/other"] = FakeSource{"gen-other"};
    disk["lib/other"].swap = {"IA3", {}, {"q"}};
    start();
    REQUIRE((load("m", "lib/ia3"), run(), module("m")));
    CHECK(text_of(*swap("lib/other")) == "Hotswapping only supports LORA but IA3 was passed");
    check_clean();
}

TEST_CASE_METHOD(SwapFixture, "row 21, strict: a name that nobody has takes no swap", "[actors][hotswap]") {
    start();
    const auto refused = swap("lib/now");
    CHECK(refused->code() == Errc::invalid_module);
    CHECK(text_of(*refused) == "Hot swapping the adapter did not succeed, unexpected keys found: q, v.");
    CHECK(modules().empty());
    CHECK(*live_bytes == 0);
    const auto added = load("m", "lib/now");
    run();
    CHECK(added->ok());
}

TEST_CASE_METHOD(SwapFixture, "strict: a cold name is loaded to be compared with", "[actors][hotswap]") {
    begin();
    REQUIRE(order("m", ModuleOrder::unload)->ok());
    CHECK(*live_bytes == 0);
    CHECK(swap("lib/more")->code() == Errc::invalid_module);
    CHECK(module("m")->generation == "gen-now");
    REQUIRE(order("m", ModuleOrder::unload)->ok());
    REQUIRE(swap("lib/fewer")->ok());
    CHECK(module("m")->generation == "gen-fewer");
    check_clean();
}

TEST_CASE_METHOD(SwapFixture, "strict: a module that failed has nothing that a swap could break", "[actors][hotswap]") {
    begin();
    REQUIRE(order("m", ModuleOrder::unload)->ok());
    disk["lib/now"].load_error = make_error(Errc::invalid_module, "broken");
    ask("m");
    CHECK(tier("m") == Tier::failed);
    REQUIRE(swap("lib/ia3")->ok());
    CHECK(module("m")->generation == "gen-ia3");
}

TEST_CASE_METHOD(SwapFixture, "strict: a running stream keeps its generation, the next request has the new one",
                 "[actors][hotswap]") {
    begin();
    CHECK(ask("m")->ok());
    hold_steps(true);
    const Seen running = ask(request("m", 6));
    step();
    const auto order = load("m", "lib/same", true);
    for (int i = 0; i < 4; ++i) step();
    hold_steps(false);
    run();
    REQUIRE(order->ok());
    REQUIRE(running->ok());
    REQUIRE(running->finished->served.size() == 1);
    CHECK(running->finished->served[0].modules[0].id.generation == "gen-now");
    CHECK(ask("m")->finished->served[0].modules[0].id.generation == "gen-same");
    check_clean();
}

TEST_CASE_METHOD(SwapFixture, "relaxed: any module may follow any other", "[actors][hotswap]") {
    settings.modules.swap = "relaxed";
    begin();
    for (const char* path : {"lib/more", "lib/ia3", "lib/dora", "lib/now"}) {
        REQUIRE(swap(path)->ok());
        CHECK(module("m")->generation == disk[path].generation);
        check_clean();
    }
}
