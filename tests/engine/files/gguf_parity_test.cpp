#include "engine/files/gguf.hpp"

#include "../text/tally.hpp"

#include <catch2/catch.hpp>

#include <nlohmann/json.hpp>

#include <bit>
#include <cmath>
#include <fstream>
#include <map>

// Against what the reference reader, gguf-py, made of the same files.
namespace attune {
namespace {

const std::filesystem::path kFolder = std::filesystem::path(ATTUNE_TEST_DATA) / "gguf";

nlohmann::json read_json(const std::filesystem::path& path) {
    std::ifstream stream(path);
    return nlohmann::json::parse(stream);
}

std::vector<std::byte> bytes_of(const std::filesystem::path& path) {
    auto bytes = read_file(path, 1 << 24);
    REQUIRE(bytes);
    return *std::move(bytes);
}

std::vector<float> values_of(const std::filesystem::path& path, const StoredTensor& tensor) {
    const auto file = ReadOnlyFile::open(path);
    REQUIRE(file);
    std::vector<std::byte> raw(tensor.bytes);
    REQUIRE(file->read(tensor.begin, raw));
    std::size_t count = 1;
    for (const std::int64_t extent : tensor.shape) count *= static_cast<std::size_t>(extent);
    std::vector<float> values(count);
    REQUIRE(convert_to_f32(tensor.type, raw.data(), values.data(), count));
    return values;
}

nlohmann::json as_json(const GgufArray& array) {
    auto list = nlohmann::json::array();
    for (const std::uint64_t value : array.integers) {
        if (array.element == GgufType::boolean)
            list.push_back(value != 0);
        else if (array.element == GgufType::i8 || array.element == GgufType::i16 || array.element == GgufType::i32 ||
                 array.element == GgufType::i64)
            list.push_back(static_cast<std::int64_t>(value));
        else
            list.push_back(value);
    }
    for (const double value : array.reals) list.push_back(value);
    for (const std::string& value : array.strings) list.push_back(value);
    for (const GgufArray& value : array.arrays) list.push_back(as_json(value));
    return list;
}

nlohmann::json as_json(const GgufValue& value) {
    return std::visit(
        [](const auto& held) -> nlohmann::json {
            if constexpr (std::is_same_v<std::decay_t<decltype(held)>, GgufArray>)
                return as_json(held);
            else
                return held;
        },
        value.value);
}

std::string reference_name(GgufType type) {
    static const char* const kNames[] = {"UINT8", "INT8",   "UINT16", "INT16",  "UINT32", "INT32",  "FLOAT32",
                                         "BOOL",  "STRING", "ARRAY",  "UINT64", "INT64",  "FLOAT64"};
    return kNames[static_cast<std::size_t>(type)];
}

TEST_CASE("the values of every tensor type are gguf-py's, bit for bit", "[engine][files][gguf]") {
    const auto index = read_json(kFolder / "index.json");
    CHECK(index.size() == 13);
    for (const auto& [name, shapes] : index.items()) {
        const auto path = kFolder / name;
        const std::string type = name.substr(0, name.find('.'));
        const auto header = read_gguf_header(path);
        REQUIRE(header);
        const auto expected_path = kFolder / (type + ".expected.safetensors");
        const auto expected = read_safetensors_header(expected_path);
        REQUIRE(expected);
        CHECK(header->tensors.size() == shapes.size());
        CHECK(expected->tensors.size() == shapes.size());
        Tally tally("gguf values of " + type);
        for (const auto& [tensor_name, shape] : shapes.items()) {
            const StoredTensor* tensor = header->tensor(tensor_name);
            REQUIRE(tensor != nullptr);
            std::string upper = type;
            for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
            CHECK(tensor->type_name == upper);
            CHECK(tensor->shape == shape.get<std::vector<std::int64_t>>());
            const auto values = values_of(path, *tensor);
            const auto wanted = values_of(expected_path, *expected->find(tensor_name));
            REQUIRE(values.size() == wanted.size());
            for (std::size_t i = 0; i < values.size(); ++i)
                tally.check(std::bit_cast<std::uint32_t>(values[i]) == std::bit_cast<std::uint32_t>(wanted[i]),
                            tensor_name + " value " + std::to_string(i));
        }
        tally.conclude();
    }
}

TEST_CASE("metadata of every type and version is read as gguf-py reads it", "[engine][files][gguf]") {
    const auto expected = read_json(kFolder / "metadata_expected.json");
    REQUIRE(expected["files"].size() == 4);
    for (const auto& [name, description] : expected["files"].items()) {
        CAPTURE(name);
        const auto header = read_gguf_header(kFolder / name);
        REQUIRE(header);
        CHECK(header->file_name == name);
        CHECK(header->version == description["version"].get<std::uint32_t>());
        CHECK(header->alignment == description["alignment"].get<std::uint64_t>());
        Tally tally("gguf keys of " + name);
        for (const auto& [key, field] : expected["fields"].items()) {
            const GgufValue* found = header->find(key);
            REQUIRE(found != nullptr);
            bool same = reference_name(found->type) == field["type"] && as_json(*found) == field["value"];
            if (const auto* array = std::get_if<GgufArray>(&found->value))
                same = same && reference_name(array->element) == field["of"] && array->size() == field["value"].size();
            tally.check(same, key);
        }
        tally.conclude();
        CHECK(header->metadata.size() ==
              expected["fields"].size() + (header->find("general.alignment") != nullptr ? 1 : 0));
        CHECK(header->tensors.size() == description["tensors"].size());
        for (const auto& [tensor_name, shape] : description["tensors"].items()) {
            const StoredTensor* tensor = header->tensor(tensor_name);
            REQUIRE(tensor != nullptr);
            CHECK(tensor->shape == shape.get<std::vector<std::int64_t>>());
            CHECK(values_of(kFolder / name, *tensor) ==
                  description["tensor_values"][tensor_name].get<std::vector<float>>());
        }
    }
}

TEST_CASE("malformed files are refused and borderline ones judged", "[engine][files][gguf]") {
    // Where the reference set leaves the choice: what nobody could use safely is refused.
    const std::map<std::string, bool> borderline = {
        {"array_nested.gguf", true},
        {"bool_7.gguf", false},
        {"dims_0.gguf", true},
        {"dims_5.gguf", false},
        {"dims_zero_size.gguf", true},
        {"key_70000.gguf", false},
        {"key_empty.gguf", false},
        {"key_nul.gguf", false},
        {"string_not_utf8.gguf", false},
        {"tensor_name_65.gguf", true},
        {"tensor_name_empty.gguf", false},
        {"tensor_name_nul.gguf", false},
        {"tensor_overlap.gguf", false},
    };
    const auto index = read_json(kFolder / "bad" / "index.json");
    REQUIRE(index.size() == 103);
    Tally tally("malformed and borderline gguf files");
    for (const auto& item : index) {
        const std::string name = item["file"];
        const std::string expect = item["expect"];
        CAPTURE(name);
        const auto found = borderline.find(name);
        REQUIRE((found != borderline.end()) == (expect == "either" || expect == "error_or_replaced"));
        const bool reads = found != borderline.end() ? found->second : expect != "error";
        const auto bytes = bytes_of(kFolder / "bad" / name);
        const auto from_disk = read_gguf_header(kFolder / "bad" / name);
        const auto from_memory = parse_gguf_header(bytes, name);
        tally.check(static_cast<bool>(from_disk) == reads && static_cast<bool>(from_memory) == reads,
                    name + ": " + item["why"].get<std::string>());
        if (from_disk) {
            for (const StoredTensor& tensor : from_disk->tensors) CHECK(tensor.begin + tensor.bytes <= bytes.size());
        } else {
            const std::string& message = from_disk.error().message;
            CHECK(from_disk.error().code == Errc::invalid_module);
            CHECK(message == from_memory.error().message);
            CHECK(message.rfind(name + ": ", 0) == 0);
            CHECK(message.size() > name.size() + 10);
            CHECK_NOTHROW(nlohmann::json(message).dump());  // valid UTF-8, whatever the file holds
        }
    }
    tally.conclude();
}

TEST_CASE("every malformed file cut after each of its first bytes is refused or read inside its bytes",
          "[engine][files][gguf]") {
    Tally tally("gguf files cut short");
    for (const auto& item : read_json(kFolder / "bad" / "index.json")) {
        const std::string name = item["file"];
        const auto whole = bytes_of(kFolder / "bad" / name);
        for (std::size_t size = 0; size < std::min<std::size_t>(whole.size(), 600); ++size) {
            // Exactly as large as the cut, so that a sanitizer sees a read past its end.
            const std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
            const auto header = parse_gguf_header(cut, name);
            bool inside = true;
            if (header)
                for (const StoredTensor& tensor : header->tensors) inside &= tensor.begin + tensor.bytes <= size;
            tally.check(inside, name + " cut after " + std::to_string(size));
            if (item["expect"] == "error") tally.check(!header, name + " cut after " + std::to_string(size) + " reads");
        }
    }
    tally.conclude();
}

TEST_CASE("a file with any one byte of its header changed is refused or read inside its bytes",
          "[engine][files][gguf]") {
    Tally tally("gguf files with a byte changed");
    for (const char* name : {"bad/ok_plain.gguf", "metadata_v3.gguf", "q6_k.gguf", "bad/array_nested.gguf"}) {
        const auto whole = bytes_of(kFolder / name);
        for (std::size_t at = 0; at < std::min<std::size_t>(whole.size(), 1200); ++at)
            for (const std::uint8_t change : {0x01, 0x40, 0x80, 0xFF}) {
                auto bytes = whole;
                bytes[at] ^= static_cast<std::byte>(change);
                const auto header = parse_gguf_header(bytes, name);
                bool inside = true;
                if (header)
                    for (const StoredTensor& tensor : header->tensors)
                        inside &= tensor.begin + tensor.bytes <= bytes.size();
                tally.check(inside, std::string(name) + " byte " + std::to_string(at));
            }
    }
    tally.conclude();
}

TEST_CASE("tiny models with a vocabulary are read", "[engine][files][gguf]") {
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(kFolder / "tokenizers")) {
        if (entry.path().extension() != ".gguf") continue;
        ++files;
        CAPTURE(entry.path().filename().string());
        const auto header = read_gguf_header(entry.path());
        REQUIRE(header);
        CHECK(*header->text("general.architecture") == "llama");
        const auto tokens = header->array("tokenizer.ggml.tokens", GgufType::string);
        REQUIRE(tokens);
        REQUIRE(*tokens != nullptr);
        const auto* embedding = header->tensor("token_embd.weight");
        REQUIRE(embedding != nullptr);
        CHECK(static_cast<std::int64_t>((*tokens)->strings.size()) == embedding->shape.front());
        const auto from_memory = parse_gguf_header(bytes_of(entry.path()), "x");
        REQUIRE(from_memory);
        CHECK(from_memory->array("tokenizer.ggml.tokens", GgufType::string).value()->strings == (*tokens)->strings);
    }
    CHECK(files == 8);
}

}  // namespace
}  // namespace attune
