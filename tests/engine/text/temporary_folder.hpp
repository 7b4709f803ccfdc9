#pragma once

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>

namespace attune {

/// A folder of its own for one test.
class TemporaryFolder {
public:
    TemporaryFolder() {
        static std::atomic<int> next{0};
        path_ = std::filesystem::temp_directory_path() /
                ("attune_text_" + std::to_string(::getpid()) + "_" + std::to_string(next++));
        std::filesystem::create_directory(path_);
    }
    ~TemporaryFolder() { std::filesystem::remove_all(path_); }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;

    const std::filesystem::path& path() const { return path_; }
    void write(const std::string& name, const std::string& text) const {
        std::ofstream(path_ / name, std::ios::binary) << text;
    }

private:
    std::filesystem::path path_;
};

}  // namespace attune
