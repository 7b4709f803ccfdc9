#include "engine/files/gguf.hpp"

#include "attune/utf8.hpp"
#include "engine/files/ggml_type.hpp"
#include "gguf_bytes.hpp"
#include "support/temporary_folder.hpp"

#include <catch2/catch.hpp>

#include <cstring>

namespace attune {
namespace {

constexpr std::uint32_t kF32 = 0;

GgufHeader header_of(const GgufBytes& bytes, std::size_t data_bytes = 0) {
    auto header = parse_gguf_header(bytes.file(data_bytes), "x.gguf");
    if (!header) FAIL(header.error().message);
    return *std::move(header);
}

std::string fault_of(const GgufBytes& bytes, std::size_t data_bytes = 0) {
    const auto header = parse_gguf_header(bytes.file(data_bytes), "x.gguf");
    return header ? "" : header.error().message;
}

/// A file of its own for each test, deleted with it.
struct TempFile {
    TemporaryFolder folder;
    std::filesystem::path path;
    explicit TempFile(const std::vector<std::byte>& bytes)
        : path(folder.write("x.gguf", {reinterpret_cast<const char*>(bytes.data()), bytes.size()})) {}
};

TEST_CASE("a GGUF fault is named with its key", "[engine][files][gguf]") {
    CHECK(fault_of(GgufBytes().key("general.name", GgufType::string).value("\xC3(")) ==
          "x.gguf: key \"general.name\": a string is not valid UTF-8");
    CHECK(fault_of(GgufBytes().key("k", GgufType::u8).value(std::uint8_t{1}).key("a\xFF", GgufType::u8)) ==
          "x.gguf: key 2 of 2: a string is not valid UTF-8");
    GgufBytes twice;
    for (int i = 0; i < 2; ++i) twice.key("k\n", GgufType::u8).value(std::uint8_t{1});
    CHECK(fault_of(twice) == "x.gguf: key \"k\\u000a\" appears twice");
    CHECK(fault_of(GgufBytes().key("flag", GgufType::boolean).value(std::uint8_t{7})) ==
          "x.gguf: key \"flag\": its truth value is 7, neither 0 nor 1");
    CHECK(
        fault_of(GgufBytes().key("list", GgufType::array).array(static_cast<GgufType>(99), 1).value(std::uint8_t{0})) ==
        "x.gguf: key \"list\": the elements of its array are of unknown type 99");
    CHECK(fault_of(GgufBytes().key("k", static_cast<GgufType>(13)).value(std::uint8_t{0})) ==
          "x.gguf: key \"k\": its value is of unknown type 13");
    CHECK(fault_of(GgufBytes().key("general.alignment", GgufType::u32).value(std::uint32_t{24})) ==
          "x.gguf: key \"general.alignment\": an alignment of 24 is no power of two");
    CHECK(fault_of(GgufBytes().key("general.alignment", GgufType::u32).value(std::uint32_t{1 << 21})) ==
          "x.gguf: key \"general.alignment\": an alignment of 2097152 is over the limit of 1048576");
    CHECK(fault_of(GgufBytes().key("general.alignment", GgufType::u64).value(std::uint64_t{64})) ==
          "x.gguf: key \"general.alignment\": the alignment is not a number of type u32");
    CHECK(fault_of(GgufBytes().key("list", GgufType::array).array(GgufType::string, std::uint64_t{1} << 62)) ==
          "x.gguf: key \"list\": its array of 4611686018427387904 elements does not fit into the 12 bytes that follow");
}

TEST_CASE("a GGUF fault is named with its tensor", "[engine][files][gguf]") {
    CHECK(fault_of(GgufBytes().tensor("a", {8}, kF32, 0), 31) ==
          "x.gguf: tensor \"a\": its 32 bytes (F32, extents [8]) at offset 0 do not lie in the 31 bytes of data");
    CHECK(fault_of(GgufBytes().tensor("a", {8}, kF32, 0xFFFFFFFFFFFFFFE0), 64) ==
          "x.gguf: tensor \"a\": its 32 bytes (F32, extents [8]) at offset 18446744073709551584 do not lie in the "
          "64 bytes of data");
    // 2^64 - 32 bytes at offset 32 end at 0 where a sum wraps.
    CHECK(fault_of(GgufBytes().tensor("a", {(std::uint64_t{1} << 62) - 8}, kF32, 32), 64) ==
          "x.gguf: tensor \"a\": its 18446744073709551584 bytes (F32, extents [4611686018427387896]) at offset 32 do "
          "not lie in the 64 bytes of data");
    CHECK(fault_of(GgufBytes().tensor("a", {8}, kF32, 4), 64) ==
          "x.gguf: tensor \"a\": its offset 4 is no multiple of the alignment, 32");
    CHECK(fault_of(GgufBytes().tensor("a", {33, 2}, 2, 0), 64) ==
          "x.gguf: tensor \"a\": its rows of 33 values do not fill whole Q4_0 blocks of 32");
    CHECK(fault_of(GgufBytes().tensor("a", {}, 12, 0), 512) ==
          "x.gguf: tensor \"a\": its rows of 1 values do not fill whole Q4_K blocks of 256");
    CHECK(fault_of(GgufBytes().tensor("a", {32}, 4, 0), 64) == "x.gguf: tensor \"a\": ggml's type 4 is unknown");
    CHECK(fault_of(GgufBytes().tensor("a", {1, 1, 1, 1, 1}, kF32, 0), 64) ==
          "x.gguf: tensor \"a\": it has 5 dimensions, the limit is 4");
    CHECK(fault_of(GgufBytes().tensor("a", {std::uint64_t{1} << 62, 4}, kF32, 0), 64) ==
          "x.gguf: tensor \"a\": its extents overflow");
    // In any order: the product of the others overflows however it is taken.
    CHECK(fault_of(GgufBytes().tensor("a", {0, std::uint64_t{1} << 62, 4}, kF32, 0), 64) ==
          "x.gguf: tensor \"a\": its extents overflow");
    CHECK(fault_of(GgufBytes().tensor("a", {std::uint64_t{1} << 63}, kF32, 0), 64) ==
          "x.gguf: tensor \"a\": its extents overflow");
    CHECK(fault_of(GgufBytes().tensor("a", {std::uint64_t{1} << 62}, kF32, 0), 64) ==
          "x.gguf: tensor \"a\": its size overflows");
    CHECK(fault_of(GgufBytes().tensor("a", {8}, kF32, 0).tensor("a", {8}, kF32, 32), 64) ==
          "x.gguf: tensor \"a\" appears twice");
    CHECK(fault_of(GgufBytes().tensor("b", {9}, kF32, 0).tensor("a", {8}, kF32, 32), 64) ==
          "x.gguf: tensor \"a\" shares bytes with tensor \"b\"");
    CHECK(fault_of(GgufBytes().tensor(std::string_view("a\0b", 3), {8}, kF32, 0), 64) ==
          "x.gguf: tensor 1 of 1: its name holds a NUL byte");
}

TEST_CASE("GGUF counts that cannot be true are named before anything is read by them", "[engine][files][gguf]") {
    const auto claimed = [](std::uint64_t tensors, std::uint64_t keys) {
        auto bytes = GgufBytes().file(1400);
        std::memcpy(bytes.data() + 8, &tensors, 8);
        std::memcpy(bytes.data() + 16, &keys, 8);
        const auto header = parse_gguf_header(bytes, "x.gguf");
        return header ? "" : header.error().message;
    };
    CHECK(claimed(0, 0).empty());
    CHECK(claimed(0, 101) == "x.gguf: 101 keys do not fit into the 1408 bytes that follow");
    CHECK(claimed(57, 0) == "x.gguf: 57 tensors do not fit into the 1408 bytes that follow");
    CHECK(claimed(0, 100) == "x.gguf: key 1 of 100: its name is empty");
    CHECK(claimed(56, 0) == "x.gguf: tensor 1 of 56: its name is empty");
}

TEST_CASE("GGUF tensors are listed by name, row-major, at their place in the file", "[engine][files][gguf]") {
    GgufBytes bytes;
    bytes.tensor("b", {3, 2}, kF32, 32).tensor("a", {8}, kF32, 0).tensor("none", {0, 4}, kF32, 32);
    const auto header = header_of(bytes, 56);
    const std::uint64_t data_begin = header.file_bytes - 56;
    REQUIRE(header.tensors.size() == 3);
    CHECK(header.tensors[0].name == "a");
    CHECK(header.tensors[0].begin == data_begin);
    CHECK(header.tensors[1].shape == std::vector<std::int64_t>{2, 3});
    CHECK(header.tensors[1].begin == data_begin + 32);
    CHECK(header.tensors[1].bytes == 24);
    CHECK(header.tensors[2].bytes == 0);
    CHECK(header.tensor("b") == &header.tensors[1]);
    CHECK(header.tensor("c") == nullptr);
}

TEST_CASE("a GGUF tensor of a type nobody decodes is described and gives no values", "[engine][files][gguf]") {
    const auto header = header_of(GgufBytes().tensor("a", {512, 2}, 16, 0), 4 * 66);
    CHECK(header.tensors[0].type == StoredType::other);
    CHECK(header.tensors[0].type_name == "IQ2_XXS");
    CHECK(header.tensors[0].bytes == 4 * 66);
    std::vector<std::byte> raw(4 * 66);
    std::vector<float> values(1024);
    CHECK_FALSE(convert_to_f32(header.tensors[0].type, raw.data(), values.data(), values.size()));
    CHECK_FALSE(fault_of(GgufBytes().tensor("a", {512, 2}, 16, 0), 4 * 66 - 1).empty());
}

TEST_CASE("whole blocks are converted, parts of one are refused", "[engine][files][gguf]") {
    std::vector<std::byte> raw(2 * 210);
    std::vector<float> values(512, 1.0F);
    int types = 0;
    for (std::uint32_t id = 0; id < 64; ++id) {
        const GgmlType* type = ggml_type(id);
        if (type == nullptr || type->type == StoredType::other || type->block_elements == 1) continue;
        ++types;
        CAPTURE(type->name);
        CHECK(block_elements(type->type) == type->block_elements);
        CHECK(block_bytes(type->type) == type->block_bytes);
        CHECK(convert_to_f32(type->type, raw.data(), values.data(), 2 * type->block_elements));
        CHECK(values[2 * type->block_elements - 1] == 0.0F);
        CHECK_FALSE(convert_to_f32(type->type, raw.data(), values.data(), type->block_elements + 16));
        CHECK(convert_to_f32(type->type, raw.data(), values.data(), 0));
    }
    CHECK(types == 10);
}

TEST_CASE("keys are asked for by type", "[engine][files][gguf]") {
    GgufBytes bytes;
    bytes.key("u8", GgufType::u8).value(std::uint8_t{200});
    bytes.key("i32", GgufType::i32).value(std::int32_t{-5});
    bytes.key("u64", GgufType::u64).value(std::uint64_t{1} << 63);
    bytes.key("f32", GgufType::f32).value(0.5F);
    bytes.key("f64", GgufType::f64).value(0.1);
    bytes.key("yes", GgufType::boolean).value(std::uint8_t{1});
    bytes.key("text", GgufType::string).value("é");
    bytes.key("ints", GgufType::array).array(GgufType::i16, 2).value(std::int16_t{-1}).value(std::int16_t{2});
    bytes.key("reals", GgufType::array).array(GgufType::f32, 1).value(0.25F);
    const auto header = header_of(bytes);
    CHECK(*header.integer("u8") == 200);
    CHECK(*header.integer("i32") == -5);
    CHECK(*header.real("i32") == -5.0);
    CHECK(*header.real("u64") == 0x1p63);
    CHECK(*header.real("f32") == 0.5);
    CHECK(*header.real("f64") == 0.1);
    CHECK(*header.boolean("yes") == true);
    CHECK(*header.text("text") == "é");
    CHECK((*header.array("ints", GgufType::u32))->integers[0] == ~std::uint64_t{0});
    CHECK((*header.array("reals", GgufType::f64))->reals == std::vector<double>{0.25});

    CHECK_FALSE(header.integer("absent")->has_value());
    CHECK_FALSE(header.real("absent")->has_value());
    CHECK_FALSE(header.boolean("absent")->has_value());
    CHECK_FALSE(header.text("absent")->has_value());
    CHECK(*header.array("absent", GgufType::u32) == nullptr);

    const auto fault = [](const auto& result) {
        REQUIRE_FALSE(result);
        CHECK(result.error().code == Errc::invalid_argument);
        return result.error().message;
    };
    CHECK(fault(header.integer("u64")) == "x.gguf: key \"u64\" is 9223372036854775808, too large");
    CHECK(fault(header.integer("f32")) == "x.gguf: key \"f32\" is of type f32, not an integer");
    CHECK(fault(header.integer("yes")) == "x.gguf: key \"yes\" is of type bool, not an integer");
    CHECK(fault(header.real("text")) == "x.gguf: key \"text\" is of type string, not a number");
    CHECK(fault(header.boolean("u8")) == "x.gguf: key \"u8\" is of type u8, not a truth value");
    CHECK(fault(header.text("ints")) == "x.gguf: key \"ints\" is of type array, not a string");
    CHECK(fault(header.array("u8", GgufType::string)) == "x.gguf: key \"u8\" is of type u8, not an array of string");
    CHECK(fault(header.array("reals", GgufType::u8)) ==
          "x.gguf: key \"reals\" is an array of f32, not an array of integers");
}

TEST_CASE("GGUF arrays of arrays are read down to a bounded depth", "[engine][files][gguf]") {
    const auto nested = [](int depth) {
        GgufBytes bytes;
        bytes.key("deep", GgufType::array);
        for (int i = 1; i < depth; ++i) bytes.array(GgufType::array, 1);
        return bytes.array(GgufType::u8, 1).value(std::uint8_t{9});
    };
    const auto header = header_of(nested(4));
    const auto* array = &std::get<GgufArray>(header.find("deep")->value);
    for (int i = 1; i < 4; ++i) {
        REQUIRE(array->arrays.size() == 1);
        array = &array->arrays[0];
    }
    CHECK(array->integers == std::vector<std::uint64_t>{9});
    CHECK(fault_of(nested(5)) == "x.gguf: key \"deep\": its arrays are more than 4 deep");
}

// Three buffers long, with values at odd places, so that some lie across the buffer's end.
GgufBytes long_header() {
    GgufBytes bytes;
    bytes.key("odd", GgufType::u8).value(std::uint8_t{1});
    for (int i = 0; i < 900; ++i) {
        bytes.key("key." + std::to_string(i), GgufType::u64).value(std::uint64_t{0x0102030405060708} + i);
        bytes.key("text." + std::to_string(i), GgufType::string)
            .value(std::string(static_cast<std::size_t>(i % 50), 'x'));
    }
    bytes.tensor("a", {8}, kF32, 0);
    return bytes;
}

TEST_CASE("a GGUF header longer than the reading buffer is read whole", "[engine][files][gguf]") {
    const auto header = header_of(long_header(), 32);
    CHECK(header.tensors.front().begin > 48 * 1024);
    for (int i = 0; i < 900; ++i) {
        CHECK(*header.integer("key." + std::to_string(i)) == 0x0102030405060708 + i);
        CHECK(*header.text("text." + std::to_string(i)) == std::string(static_cast<std::size_t>(i % 50), 'x'));
    }
}

TEST_CASE("what is parsed of a GGUF file is what is seen, once and in order", "[engine][files][gguf]") {
    const auto bytes = long_header().file(32);
    const TempFile temp(bytes);
    const auto file = ReadOnlyFile::open(temp.path);
    REQUIRE(file);
    std::vector<std::byte> seen;
    const auto header = read_gguf_header(*file, kMaxGgufHeaderBytes, [&](std::span<const std::byte> part) {
        seen.insert(seen.end(), part.begin(), part.end());
    });
    REQUIRE(header);
    const std::uint64_t data_begin = header->tensors.front().begin;
    CHECK(seen.size() <= data_begin);
    CHECK(seen.size() > data_begin - 32);
    CHECK(std::memcmp(seen.data(), bytes.data(), seen.size()) == 0);

    CHECK(read_gguf_header(*file, seen.size()));
    const auto limited = read_gguf_header(*file, seen.size() - 1);
    REQUIRE_FALSE(limited);
    CHECK(limited.error().code == Errc::invalid_module);
    CHECK(limited.error().message == file->name() + ": tensor \"a\": the header goes beyond " +
                                         std::to_string(seen.size() - 1) + " bytes, the limit");
}

TEST_CASE("a GGUF count must fit below the header's limit, however large the file", "[engine][files][gguf]") {
    const TempFile temp(GgufBytes().key("k", GgufType::array).array(GgufType::u8, 100'000).file(200'000));
    const auto file = ReadOnlyFile::open(temp.path);
    REQUIRE(file);
    CHECK(read_gguf_header(*file));
    const auto limited = read_gguf_header(*file, 50'000);
    REQUIRE_FALSE(limited);
    CHECK(limited.error().message.find("its array of 100000 elements does not fit") != std::string::npos);
}

TEST_CASE("a GGUF file that shrinks while it is read is an error of reading", "[engine][files][gguf]") {
    const TempFile temp(long_header().file(32));
    const auto file = ReadOnlyFile::open(temp.path);
    REQUIRE(file);
    std::filesystem::resize_file(temp.path, 20'000);
    const auto header = read_gguf_header(*file);
    REQUIRE_FALSE(header);
    CHECK(header.error().code == Errc::io);
}

TEST_CASE("text is UTF-8 exactly when Unicode says so", "[engine][files]") {
    for (const char* good : {"", "a", "\x7F", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
                             "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF", "a\xC3\xA9z"})
        CHECK(is_valid_utf8(good));
    for (const char* bad : {"\x80", "\xC0\x80", "\xC1\xBF", "\xC2", "\xC2z", "\xE0\x9F\xBF", "\xE0\xA0", "\xE1\x80z",
                            "\xED\xA0\x80", "\xF0\x8F\xBF\xBF", "\xF0\x90\x80", "\xF1\x80\x80z", "\xF4\x90\x80\x80",
                            "\xF5\x80\x80\x80", "\xFF", "a\xC3(z"})
        CHECK_FALSE(is_valid_utf8(bad));
    CHECK(is_valid_utf8(std::string_view("a\0b", 3)));
}

}  // namespace
}  // namespace attune
