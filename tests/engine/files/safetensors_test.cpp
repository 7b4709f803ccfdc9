#include "engine/files/safetensors.hpp"

#include "engine/files/quote.hpp"

#include <catch2/catch.hpp>

#include <nlohmann/json.hpp>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>

namespace attune {
namespace {

const std::filesystem::path kBadFolder = std::filesystem::path(ATTUNE_TEST_DATA) / "parity" / "safetensors_bad";

std::vector<std::byte> bytes_of(const std::string& json, std::size_t data_bytes) {
    std::vector<std::byte> file(8 + json.size() + data_bytes);
    const std::uint64_t length = json.size();
    std::memcpy(file.data(), &length, 8);
    std::memcpy(file.data() + 8, json.data(), json.size());
    return file;
}

std::string fault_of(const std::string& json, std::size_t data_bytes) {
    const auto header = parse_safetensors_header(bytes_of(json, data_bytes), "x.safetensors");
    return header ? "" : header.error().message;
}

TEST_CASE("A15: safetensors headers are judged as the reference library judges them", "[engine][files][A15]") {
    std::ifstream stream(kBadFolder / "index.json");
    const auto index = nlohmann::json::parse(stream);
    REQUIRE(index["files"].size() == 83);
    for (const auto& item : index["files"]) {
        const std::string name = item["file"];
        CAPTURE(name, item["why"].get<std::string>());
        const auto from_disk = read_safetensors_header(kBadFolder / name);
        const auto bytes = read_file(kBadFolder / name, 1 << 20);
        REQUIRE(bytes);
        // A copy of exactly the file's size, so that a sanitizer sees a read past its end.
        const auto from_memory = parse_safetensors_header(*bytes, name);
        if (item["expect"] == "error") {
            REQUIRE_FALSE(from_disk);
            REQUIRE_FALSE(from_memory);
            CHECK(from_disk.error().code == Errc::invalid_module);
            CHECK(from_disk.error().message == from_memory.error().message);
            CHECK(from_disk.error().message.rfind(name + ": ", 0) == 0);
            CHECK(from_disk.error().message.size() > name.size() + 10);
            continue;
        }
        REQUIRE(from_disk);
        REQUIRE(from_memory);
        const auto& expected = item["reference"]["tensors"];
        CHECK(from_disk->tensors.size() == expected.size());
        CHECK(from_disk->file_bytes == bytes->size());
        for (const auto& [tensor_name, description] : expected.items()) {
            CAPTURE(tensor_name);
            const StoredTensor* tensor = from_disk->find(tensor_name);
            REQUIRE(tensor != nullptr);
            CHECK(tensor->type_name == description["dtype"].get<std::string>());
            CHECK(tensor->shape == description["shape"].get<std::vector<std::int64_t>>());
            CHECK(tensor->begin + tensor->bytes <= bytes->size());
            CHECK(from_memory->find(tensor_name)->begin == tensor->begin);
        }
        const auto& metadata = item["reference"]["metadata"];
        CHECK(from_disk->metadata == (metadata.is_null() ? std::map<std::string, std::string>{}
                                                         : metadata.get<std::map<std::string, std::string>>()));
    }
}

TEST_CASE("a header's fault is named with its tensor", "[engine][files]") {
    const std::string entry = R"({"dtype":"F32","shape":[4],"data_offsets":[0,16]})";
    CHECK(fault_of("{\"a\":" + entry + "}", 16).empty());
    CHECK(fault_of("{\"a\":" + entry + "}", 15) ==
          "x.safetensors: tensor \"a\" ends after the file: the file is cut short");
    CHECK(fault_of("{\"a\":" + entry + "}", 20) == "x.safetensors: 4 bytes at the end belong to no tensor");
    CHECK(fault_of(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,16]}})", 16) ==
          "x.safetensors: tensor \"a\": [3] of F32 needs 12 bytes, data_offsets give 16");
    CHECK(fault_of(R"({"a\u0000":{"dtype":"Q7","shape":[3],"data_offsets":[0,16]}})", 16) ==
          "x.safetensors: tensor \"a\\u0000\": unknown dtype \"Q7\"");
    CHECK(fault_of("[]", 0) == "x.safetensors: the header is an array, not an object");
    CHECK(fault_of(R"({"a":7})", 0) == "x.safetensors: tensor \"a\": its entry is a number, not an object");
    CHECK(fault_of(R"({"__metadata__":{"a":7}})", 0) ==
          "x.safetensors: __metadata__ holds a number where only strings are allowed");
}

TEST_CASE("an unknown field of an entry is skipped with everything inside it", "[engine][files]") {
    CHECK(fault_of(R"({"a":{"x":{"dtype":5,"y":[{"shape":"no"},[1,2]]},"dtype":"U8","z":[[1.5,null]],"shape":[2],)"
                   R"("data_offsets":[0,2]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
                   3)
              .empty());
    CHECK(fault_of(R"({"a":{"x":{"dtype":"U8"},"shape":[2],"data_offsets":[0,2]}})", 2) ==
          "x.safetensors: tensor \"a\": dtype is missing");
}

TEST_CASE("a tensor of half-bytes must fill whole bytes", "[engine][files]") {
    CHECK(fault_of(R"({"a":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}})", 2).empty());
    CHECK(fault_of(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1) ==
          "x.safetensors: tensor \"a\": its values do not fill whole bytes");
}

TEST_CASE("every prefix of a good file is refused or stands for itself", "[engine][files]") {
    const auto whole = bytes_of(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", 16);
    for (std::size_t size = 0; size < whole.size(); ++size) {
        const std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
        CHECK_FALSE(parse_safetensors_header(cut, "x"));
    }
    CHECK(parse_safetensors_header(whole, "x"));
}

TEST_CASE("stored values become the same floats as IEEE says", "[engine][files]") {
    const auto f16 = [](std::uint16_t bits) {
        float value = 0;
        REQUIRE(convert_to_f32(StoredType::f16, reinterpret_cast<const std::byte*>(&bits), &value, 1));
        return value;
    };
    CHECK(f16(0x3C00) == 1.0F);
    CHECK(f16(0xC000) == -2.0F);
    CHECK(f16(0x7BFF) == 65504.0F);
    CHECK(f16(0x0001) == 0x1p-24F);
    CHECK(f16(0x83FF) == -1023 * 0x1p-24F);
    CHECK(f16(0x0400) == 0x1p-14F);
    CHECK(std::signbit(f16(0x8000)));
    CHECK(f16(0x7C00) == INFINITY);
    CHECK(f16(0xFC00) == -INFINITY);
    CHECK(std::isnan(f16(0x7E01)));
    const std::uint16_t bf16[] = {0x3F80, 0xC049, 0x7F80};
    float wide[3];
    REQUIRE(convert_to_f32(StoredType::bf16, reinterpret_cast<const std::byte*>(bf16), wide, 3));
    CHECK(wide[0] == 1.0F);
    CHECK(wide[1] == -3.140625F);
    CHECK(std::isinf(wide[2]));
    const double big = 0.1;
    REQUIRE(convert_to_f32(StoredType::f64, reinterpret_cast<const std::byte*>(&big), wide, 1));
    CHECK(wide[0] == 0.1F);
    CHECK_FALSE(convert_to_f32(StoredType::i32, reinterpret_cast<const std::byte*>(&big), wide, 1));
}

TEST_CASE("all finite half floats survive the way up and down", "[engine][files]") {
    std::vector<std::uint16_t> halves;
    for (std::uint32_t bits = 0; bits < 0x7C00; ++bits) halves.push_back(static_cast<std::uint16_t>(bits));
    std::vector<float> wide(halves.size());
    // From an odd address: files align nothing.
    std::vector<std::byte> unaligned(2 * halves.size() + 1);
    std::memcpy(unaligned.data() + 1, halves.data(), 2 * halves.size());
    REQUIRE(convert_to_f32(StoredType::f16, unaligned.data() + 1, wide.data(), halves.size()));
    for (std::size_t i = 0; i < halves.size(); ++i) {
        const int exponent = static_cast<int>(i >> 10);
        const int mantissa = static_cast<int>(i & 1023);
        const float expected = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                             : std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
        if (wide[i] != expected) FAIL("half " << i << " became " << wide[i] << ", not " << expected);
    }
}

TEST_CASE("names in messages are escaped and cut at a character", "[engine][files]") {
    CHECK(in_quotes("a\"b\\\n") == "\"a\\\"b\\\\\\u000a\"");
    CHECK(in_quotes("法条法条", 7) == "\"法条...\"");
    CHECK(shape_text(std::vector<std::int64_t>{16, 4096}) == "[16, 4096]");
    CHECK(shape_text(std::vector<std::int64_t>{}) == "[]");
}

}  // namespace
}  // namespace attune
