#pragma once

#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace attune {

inline std::filesystem::path parity_path(const std::string& name) {
    return std::filesystem::path(ATTUNE_TEST_DATA) / "parity" / name;
}

/// One JSON value a line.
inline std::vector<nlohmann::json> read_json_lines(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::vector<nlohmann::json> rows;
    for (std::string line; std::getline(file, line);) {
        if (!line.empty()) rows.push_back(nlohmann::json::parse(line));
    }
    return rows;
}

inline std::string read_text(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace attune
