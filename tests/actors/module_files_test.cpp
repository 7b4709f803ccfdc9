#include "actors/module_files.hpp"
#include "support/temporary_folder.hpp"

#include <catch2/catch.hpp>

#include <fstream>
#include <stdexcept>

using namespace attune;
namespace fs = std::filesystem;

namespace {

/// A folder of its own with two roots and something outside of them.
class RootsFixture {
public:
    RootsFixture() {
        settings.modules.roots = {top / "one", top / "two"};
        for (const char* folder : {"one", "two", "outside"}) fs::create_directories(top / folder);
        base.model_type = "llama";
        base.layers.resize(2);
    }

    void peft(const fs::path& folder) {
        fs::create_directories(top / folder);
        std::ofstream(top / folder / "adapter_config.json") << "{}";
    }
    ModuleFiles files() { return module_files(settings, base, "base"); }
    std::string resolve_error(const std::string& path) {
        auto found = files().resolve("m", path);
        return found ? "" : found.error().message;
    }

    TemporaryFolder own;
    const fs::path top = own.path();
    Settings settings;
    ModelShape base;
};

}  // namespace

TEST_CASE_METHOD(RootsFixture, "what looks like a module under a root gets its folder's name", "[actors][files]") {
    peft("one/code");
    fs::create_directories(top / "one/notes");
    std::ofstream(top / "one/readme.txt") << "x";
    const ScanResult result = files().scan();
    REQUIRE(result.modules.size() == 1);
    CHECK(result.modules[0].name == "code");
    CHECK(result.refused.empty());
}

TEST_CASE_METHOD(RootsFixture, "of one name in two roots the later is refused and told", "[actors][files]") {
    peft("one/code");
    peft("two/code");
    const ScanResult result = files().scan();
    REQUIRE(result.modules.size() == 1);
    CHECK(result.modules[0].path == top / "one/code");
    REQUIRE(result.refused.size() == 1);
    CHECK(result.refused[0] == "module `code` of root 2: the name is already taken");
}

TEST_CASE_METHOD(RootsFixture, "names that cannot be names are refused and told without the path", "[actors][files]") {
    peft("one/auto");
    peft("one/base");
    peft("one/with space");
    const ScanResult result = files().scan();
    CHECK(result.modules.empty());
    REQUIRE(result.refused.size() == 3);
    for (const std::string& sentence : result.refused) CHECK(sentence.find(top.string()) == std::string::npos);
}

TEST_CASE_METHOD(RootsFixture, "a missing root is told and the others are still read", "[actors][files]") {
    peft("two/code");
    fs::remove_all(top / "one");
    const ScanResult result = files().scan();
    CHECK(result.modules.size() == 1);
    CHECK(result.refused == std::vector<std::string>{"module root 1 cannot be read"});
}

TEST_CASE_METHOD(RootsFixture, "a path is taken absolute or relative to a root", "[actors][files]") {
    peft("two/code");
    CHECK(resolve_error((top / "two/code").string()).empty());
    CHECK(resolve_error("code").empty());
}

TEST_CASE_METHOD(RootsFixture, "everything outside of the roots reads as missing, with one text",
                 "[actors][files][E12]") {
    peft("outside/code");
    peft("one/inside");
    const std::string missing = resolve_error("nothing");
    CHECK(missing == "no module was found at that path");
    fs::create_directory_symlink(top / "outside/code", top / "one/link");
    for (const std::string& path :
         {(top / "outside/code").string(), std::string("../outside/code"), std::string("inside/../../outside/code"),
          std::string("link"), std::string("https://host/x"), std::string("file:///etc"), std::string("\\\\host\\x"),
          std::string(), std::string("."), (top / "one").string(), std::string("/etc"), std::string("a\0b", 3)})
        CHECK(resolve_error(path) == missing);
    CHECK(files().resolve("m", "nothing").error().code == Errc::not_found);
}

TEST_CASE_METHOD(RootsFixture, "a link out of the roots is not scanned", "[actors][files]") {
    peft("outside/code");
    fs::create_directory_symlink(top / "outside/code", top / "one/link");
    const ScanResult result = files().scan();
    CHECK(result.modules.empty());
    CHECK(result.refused.size() == 1);
}

TEST_CASE_METHOD(RootsFixture, "a link turned outwards after the scan is not followed by the load", "[actors][files]") {
    peft("outside/code");
    fs::create_directory_symlink(top / "outside/code", top / "one/link");
    const auto loaded = files().load("link", top / "one/link");
    REQUIRE_FALSE(loaded);
    CHECK(loaded.error().code == Errc::not_found);
}

TEST_CASE("a loader's task never throws", "[actors][files]") {
    ModuleFiles files;
    files.load = [](const std::string&, const fs::path&) -> Result<ModulePtr> { throw std::runtime_error("disk"); };
    files.resolve = [](const std::string&, const std::string&) -> Result<FoundModule> { throw std::bad_alloc(); };
    files.scan = []() -> ScanResult { throw 7; };
    CHECK((*run_task(files, {LoaderTask::Kind::load, "m", "p"})->module).error().code == Errc::internal);
    CHECK((*run_task(files, {LoaderTask::Kind::resolve, "m", "p"})->found).error().code == Errc::no_room);
    CHECK(run_task(files, {LoaderTask::Kind::scan, "", ""})->scan.refused.size() == 1);
}
