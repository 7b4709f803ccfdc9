#pragma once

#include "engine/files/safetensors.hpp"
#include "engine/module/module.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace attune::test {

/// The float32 values of a safetensors file, as the base's.
class FileBaseValues : public BaseValues {
public:
    explicit FileBaseValues(const std::filesystem::path& path) {
        const auto header = read_safetensors_header(path);
        const auto file = ReadOnlyFile::open(path);
        if (!header || !file) throw std::runtime_error("no base values");
        for (const StoredTensor& tensor : header->tensors) {
            std::vector<std::byte> bytes(tensor.bytes);
            if (!file->read(tensor.begin, bytes)) throw std::runtime_error("short base values");
            const auto columns = static_cast<std::size_t>(tensor.shape.back());
            Values& values = tensors_[tensor.name];
            values.columns = columns;
            std::size_t count = 1;
            for (const std::int64_t extent : tensor.shape) count *= static_cast<std::size_t>(extent);
            values.floats.resize(count);
            convert_to_f32(tensor.type, bytes.data(), values.floats.data(), count);
        }
    }

    Result<void> read_rows(std::string_view tensor, std::int64_t first, std::int64_t count,
                           std::span<float> into) const override {
        const auto found = tensors_.find(std::string(tensor));
        if (found == tensors_.end()) return make_error(Errc::not_found, "no tensor " + std::string(tensor));
        const auto [columns, floats] = found->second;
        const auto begin = static_cast<std::size_t>(first) * columns;
        const auto size = static_cast<std::size_t>(count) * columns;
        if (into.size() != size || begin + size > floats.size())
            return make_error(Errc::internal, "rows outside of " + std::string(tensor));
        std::copy_n(floats.begin() + static_cast<std::ptrdiff_t>(begin), size, into.begin());
        return {};
    }
    bool has(std::string_view tensor) const override { return tensors_.contains(std::string(tensor)); }
    void round_as_served(std::span<float>) const override {}

private:
    struct Values {
        std::size_t columns = 0;
        std::vector<float> floats;
    };
    std::map<std::string, Values> tensors_;
};

}  // namespace attune::test
