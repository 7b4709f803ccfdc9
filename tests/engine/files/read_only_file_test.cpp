#include "engine/files/safetensors.hpp"
#include "support/temporary_folder.hpp"

#include <catch2/catch.hpp>

#include <sys/stat.h>
#include <unistd.h>

namespace attune {
namespace {

TEST_CASE_METHOD(TemporaryFolder, "a file that shrinks while it is read is an error, never a signal",
                 "[engine][files]") {
    const auto file_path = write("weights.bin", "0123456789");
    auto file = ReadOnlyFile::open(file_path);
    REQUIRE(file);
    CHECK(file->size() == 10);
    std::vector<std::byte> bytes(10);
    CHECK(file->read(0, bytes));
    CHECK(bytes[9] == std::byte{'9'});
    std::filesystem::resize_file(file_path, 4);
    const auto read = file->read(0, bytes);
    REQUIRE_FALSE(read);
    CHECK(read.error().code == Errc::io);
    CHECK(read.error().message == "weights.bin ended early: it is shorter than when it was opened");
}

TEST_CASE_METHOD(TemporaryFolder, "only regular files are opened, and errors carry no folder", "[engine][files]") {
    const auto missing = ReadOnlyFile::open(path() / "none.bin");
    REQUIRE_FALSE(missing);
    CHECK(missing.error().message == "none.bin is missing");
    const auto folder = ReadOnlyFile::open(path());
    REQUIRE_FALSE(folder);
    CHECK(folder.error().message.find('/') == std::string::npos);
    REQUIRE(::mkfifo((path() / "pipe").c_str(), 0600) == 0);
    const auto pipe = ReadOnlyFile::open(path() / "pipe");
    REQUIRE_FALSE(pipe);
    CHECK(pipe.error().message == "pipe is not a regular file");
}

TEST_CASE_METHOD(TemporaryFolder, "a whole file is read up to its limit", "[engine][files]") {
    const auto file_path = write("a.json", "{}");
    const auto bytes = read_file(file_path, 2);
    REQUIRE(bytes);
    CHECK(bytes->size() == 2);
    const auto refused = read_file(file_path, 1);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message == "a.json has 2 bytes, the limit is 1");
    const auto empty = read_file(write("empty", ""), 0);
    REQUIRE(empty);
    CHECK(empty->empty());
}

TEST_CASE_METHOD(TemporaryFolder, "a file's identity moves with its content and its inode", "[engine][files]") {
    const auto file_path = write("a", "12");
    auto file = ReadOnlyFile::open(file_path);
    REQUIRE(file);
    const auto before = file->identity();
    REQUIRE(before);
    CHECK(before->size == 2);
    CHECK(*file->identity() == *before);
    write("a", "123");
    CHECK_FALSE(*file->identity() == *before);
    std::filesystem::rename(write("b", "12"), file_path);
    auto other = ReadOnlyFile::open(file_path);
    REQUIRE(other);
    CHECK(other->identity()->inode != before->inode);
}

}  // namespace
}  // namespace attune
