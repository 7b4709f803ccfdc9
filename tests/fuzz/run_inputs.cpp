// Runs a fuzz target once over each file named, or found under a folder named: what `make test` does with the seeds,
// without libFuzzer. Prints how many there were; none is a failure.
#include "fuzz/fuzz_input.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

namespace {

namespace fs = std::filesystem;

void run_file(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> content{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    // A copy of just this size: a read beyond its end is one that AddressSanitizer sees.
    const std::vector<std::uint8_t> bytes(content.begin(), content.end());
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

}  // namespace

int main(int count, char** words) {
    int files = 0;
    for (int i = 1; i < count; ++i) {
        if (fs::is_directory(words[i])) {
            for (const auto& entry : fs::recursive_directory_iterator(words[i])) {
                if (!entry.is_regular_file()) continue;
                run_file(entry.path());
                ++files;
            }
        } else {
            run_file(words[i]);
            ++files;
        }
    }
    std::printf("%d inputs\n", files);
    return files > 0 ? 0 : 1;
}
