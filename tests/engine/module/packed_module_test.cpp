#include "engine/module/module_folder.hpp"
#include "engine/module/module_loader.hpp"
#include "engine/module/pack_module.hpp"
#include "engine/module/tar_index.hpp"

#include <catch2/catch.hpp>

#include <cstring>
#include <fstream>
#include <iterator>

namespace attune {
namespace {

using test::ModuleFolder;
using test::small_base;

struct PackedFolder : ModuleFolder {
    ModuleFolder place;  // where archives lie
    std::filesystem::path archive = place.path() / "legal.attune";

    std::string bytes() const {
        std::ifstream file(archive, std::ios::binary);
        return {std::istreambuf_iterator<char>(file), {}};
    }
    void pack() {
        std::filesystem::remove(archive);
        const auto packed = pack_module(path(), archive);
        if (!packed) FAIL(packed.error().message);
    }
    std::string fault() const {
        const auto module = load_module("m", archive, small_base(), {});
        const auto look = inspect_module(archive, small_base(), {});
        CHECK(static_cast<bool>(module) == static_cast<bool>(look));
        return module ? "" : module.error().message;
    }
    /// Writes the archive with its first header changed and the checksum made right again.
    void write_changed(std::string content, std::size_t at, const std::string& field) {
        std::copy(field.begin(), field.end(), content.begin() + static_cast<std::ptrdiff_t>(at));
        unsigned sum = 0;
        for (std::size_t i = 0; i < 512; ++i) sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(content[i]);
        std::snprintf(content.data() + 148, 7, "%06o", sum);
        place.write_text("legal.attune", content);
    }
};

TEST_CASE_METHOD(PackedFolder, "a packed module is the module, with the same generation", "[engine][module][attune]") {
    write("adapter");
    write_text("module_config.json", R"({"format":1,"name":"legal","adapter":{"path":"adapter","scale":0.5}})");
    const auto plain = load_module("m", path(), small_base(), {});
    REQUIRE(plain);
    pack();
    const auto packed = load_module("m", archive, small_base(), {});
    REQUIRE(packed);
    CHECK((*packed)->id.generation == (*plain)->id.generation);
    REQUIRE((*packed)->pairs.size() == (*plain)->pairs.size());
    for (std::size_t i = 0; i < (*packed)->pairs.size(); ++i) CHECK((*packed)->pairs[i].a == (*plain)->pairs[i].a);
    CHECK(inspect_module(archive, small_base(), {})->name == "legal");
}

TEST_CASE_METHOD(PackedFolder, "the same files give the same archive, and nothing is overwritten",
                 "[engine][module][attune]") {
    write();
    pack();
    const std::string first = bytes();
    pack();
    CHECK(bytes() == first);
    CHECK(first.size() % 512 == 0);
    const auto again = pack_module(path(), archive);
    REQUIRE_FALSE(again);
    CHECK(again.error().message == "legal.attune exists already");
    std::filesystem::create_symlink("adapter_config.json", path() / "link");
    std::filesystem::remove(archive);
    CHECK(pack_module(path(), archive).error().message == "link is not a regular file");
    CHECK(std::filesystem::directory_iterator(place.path()) == std::filesystem::directory_iterator());
}

TEST_CASE_METHOD(PackedFolder, "an archive holds regular files inside itself only", "[engine][module][attune]") {
    write();
    pack();
    const std::string whole = bytes();
    const auto renamed = [&](const std::string& name) {
        write_changed(whole, 0, name + std::string(40 - name.size(), '\0'));
        return fault();
    };
    CHECK(renamed("../adapter_config.json").find("is no path inside the archive") != std::string::npos);
    CHECK(renamed("/adapter_config.json").find("is no path inside the archive") != std::string::npos);
    CHECK(renamed("adapter_model.safetensors").find("is there twice") != std::string::npos);
    CHECK(renamed("other.json").find("neither module_config.json nor adapter_config.json") != std::string::npos);
    CHECK(renamed("./adapter_config.json").empty());
    for (const char type : {'1', '2', '3', '6'}) {
        write_changed(whole, 156, std::string(1, type));
        CHECK(fault().find("is not a regular file") != std::string::npos);
    }
    write_changed(whole, 124, "77777777777");
    CHECK(fault().find("a member is longer than the archive") != std::string::npos);
    place.write_text("legal.attune", whole.substr(0, 148) + "999999" + whole.substr(154));
    CHECK(fault().find("a header of it is damaged") != std::string::npos);
}

TEST_CASE_METHOD(PackedFolder, "an archive cut anywhere is refused or lacks a file", "[engine][module][attune]") {
    write();
    pack();
    const std::string whole = bytes();
    for (std::size_t size = 0; size + 1024 < whole.size(); size += 100) {
        place.write_text("legal.attune", whole.substr(0, size));
        CAPTURE(size);
        CHECK_FALSE(fault().empty());
    }
}

TEST_CASE_METHOD(PackedFolder, "long names come by prefix, by pax record and by GNU member",
                 "[engine][module][attune]") {
    const std::string folder(60, 'a');
    const std::string name = folder + "/" + std::string(60, 'b') + ".json";
    write_text(name, "{}");
    pack();
    const auto by_prefix = read_tar_index(*ReadOnlyFile::open(archive), 10);
    REQUIRE(by_prefix);
    CHECK(by_prefix->begin()->first == name);
    // A member whose content names the next one.
    const auto index_of = [&](char type, const std::string& record) {
        std::string special(512, '\0');
        special += record + std::string(512 - record.size(), '\0');
        std::snprintf(special.data() + 124, 12, "%011zo", record.size());
        special[156] = type;
        write_changed(special + bytes(), 0, "special");
        const auto index = read_tar_index(*ReadOnlyFile::open(archive), 10);
        REQUIRE(index);
        const std::string found = index->begin()->first;
        pack();
        return found;
    };
    CHECK(index_of('x', "20 mtime=1700000.25\n16 path=dir/new\n") == "dir/new");
    CHECK(index_of('x', "20 mtime=1700000.25\n") == name);
    CHECK(index_of('L', std::string("dir/other\0", 10)) == "dir/other");
    CHECK(index_of('g', "16 path=dir/new\n") == name);
}

TEST_CASE_METHOD(PackedFolder, "limits on bytes and files hold for archives", "[engine][module][attune]") {
    write();
    pack();
    CHECK(load_module("m", archive, small_base(), {.package_bytes = 1000}).error().message.find("the limit is 1000") !=
          std::string::npos);
    CHECK(load_module("m", archive, small_base(), {.package_files = 1}).error().message ==
          "legal.attune: it has more files than the limit of 1");
}

}  // namespace
}  // namespace attune
