#include "engine/files/gguf.hpp"
#include "gguf_bytes.hpp"

#include <catch2/catch.hpp>

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

// A program of its own: it replaces operator new to see how much memory a file can make the reader take.
namespace {

std::atomic<std::size_t> live_bytes{0};
std::atomic<std::size_t> peak_bytes{0};

void* counted(std::size_t size) {
    void* at = std::malloc(size == 0 ? 1 : size);
    if (at == nullptr) std::abort();
    const std::size_t now = live_bytes += ::malloc_usable_size(at);
    peak_bytes = std::max(peak_bytes.load(), now);
    return at;
}
void uncounted(void* at) {
    if (at == nullptr) return;
    live_bytes -= ::malloc_usable_size(at);
    std::free(at);
}

}  // namespace

void* operator new(std::size_t size) { return counted(size); }
void* operator new[](std::size_t size) { return counted(size); }
// All forms in use, Catch's too: a sanitizer refuses memory of its own operator new at our delete.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return counted(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return counted(size); }
void operator delete(void* at) noexcept { uncounted(at); }
void operator delete[](void* at) noexcept { uncounted(at); }
void operator delete(void* at, std::size_t) noexcept { uncounted(at); }
void operator delete[](void* at, std::size_t) noexcept { uncounted(at); }

namespace attune {
namespace {

/// Bytes taken at most while the header is read and held, above what was held before.
template <class Read>
std::size_t peak_of(Read read) {
    const std::size_t before = live_bytes;
    peak_bytes = before;
    read();
    return peak_bytes - before;
}

constexpr std::size_t kSlack = 8 * 1024;  // names, messages, the vectors of small files

TEST_CASE("the counter sees what is taken", "[engine][files][gguf]") {
    CHECK(peak_of([] { std::vector<char> taken(1 << 20); }) >= 1 << 20);
}

TEST_CASE("no malformed file makes the reader take memory its bytes do not back", "[engine][files][gguf]") {
    const auto folder = std::filesystem::path(ATTUNE_TEST_DATA) / "gguf" / "bad";
    int files = 0;
    std::size_t largest = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        if (entry.path().extension() != ".gguf") continue;
        ++files;
        const std::size_t size = entry.file_size();
        const std::size_t taken = peak_of([&] { (void)static_cast<bool>(read_gguf_header(entry.path())); });
        CAPTURE(entry.path().filename().string(), size, taken);
        CHECK(taken <= kSlack + 2 * size);
        largest = std::max(largest, taken);
    }
    CHECK(files == 103);
    CHECK(largest > 0);
}

TEST_CASE(
    "counts that fill the rest of a large file cost no more than its bytes times the size of their form in memory",
    "[engine][files][gguf]") {
    constexpr std::size_t kBytes = 4 << 20;
    struct Shape {
        const char* name;
        GgufType element;
        std::uint64_t count;
        std::size_t factor;  // bytes in memory for a byte of the file
        std::size_t least;   // bytes of the file for an element
    };
    for (const Shape& shape :
         {Shape{"u8", GgufType::u8, kBytes, 8, 1}, Shape{"strings", GgufType::string, kBytes / 8, 4, 8},
          Shape{"arrays", GgufType::array, kBytes / 12, 10, 12}}) {
        // All zeros: values, empty strings, empty arrays of u8.
        const auto bytes = GgufBytes().key("k", GgufType::array).array(shape.element, shape.count).file(kBytes);
        bool reads = false;
        const std::size_t taken = peak_of([&] { reads = static_cast<bool>(parse_gguf_header(bytes, "x.gguf")); });
        CAPTURE(shape.name, taken);
        CHECK(reads);
        CHECK(taken <= kSlack + shape.factor * bytes.size());
        CHECK(taken > bytes.size());
        // More elements than can be there take nothing.
        const auto wrong =
            GgufBytes().key("k", GgufType::array).array(shape.element, bytes.size() / shape.least).file(kBytes - 64);
        CHECK(peak_of([&] { reads = static_cast<bool>(parse_gguf_header(wrong, "x.gguf")); }) <= kSlack);
        CHECK_FALSE(reads);
    }
}

}  // namespace
}  // namespace attune
