#pragma once

// Small GGUF files made by tests: what a packed file of gguf-py's cannot have, such as a tensor too few.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace attune::testing {

class GgufMaker {
public:
    // ggml's numbers of types.
    static constexpr std::uint32_t kF32 = 0;
    static constexpr std::uint32_t kQ8_0 = 8;
    static constexpr std::uint32_t kIq4Nl = 20;

    struct Tensor {
        std::string name;
        std::vector<std::int64_t> shape;  ///< row-major; the file has it reversed
        std::uint32_t type = kF32;
        std::string bytes;
    };
    std::vector<Tensor> tensors;

    void add(const std::string& key, const std::string& text) { pair(key, 8, string(text)); }
    void add(const std::string& key, std::uint32_t number) { pair(key, 4, raw(number)); }
    void add(const std::string& key, float number) { pair(key, 6, raw(number)); }

    void write(const std::filesystem::path& path) const {
        std::string out = "GGUF" + raw(std::uint32_t{3}) + raw(std::uint64_t{tensors.size()}) + raw(pairs_) + metadata_;
        std::string data;
        for (const Tensor& tensor : tensors) {
            out += string(tensor.name) + raw(static_cast<std::uint32_t>(tensor.shape.size()));
            for (auto extent = tensor.shape.rbegin(); extent != tensor.shape.rend(); ++extent) out += raw(*extent);
            out += raw(tensor.type) + raw(std::uint64_t{data.size()});
            data += tensor.bytes;
            align(data);
        }
        align(out);
        std::ofstream(path, std::ios::binary) << out << data;
    }

private:
    template <class T>
    static std::string raw(T value) {
        return std::string(reinterpret_cast<const char*>(&value), sizeof value);
    }
    static std::string string(const std::string& text) { return raw(std::uint64_t{text.size()}) + text; }
    static void align(std::string& bytes) { bytes.resize((bytes.size() + 31) / 32 * 32, '\0'); }

    void pair(const std::string& key, std::uint32_t type, const std::string& value) {
        metadata_ += string(key) + raw(type) + value;
        ++pairs_;
    }

    std::string metadata_;
    std::uint64_t pairs_ = 0;
};

}  // namespace attune::testing
