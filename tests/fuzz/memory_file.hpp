#pragma once

#include "engine/files/safetensors.hpp"
#include "fuzz/fuzz_input.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>

namespace attune::fuzz {

/// An input as a file, without a disk.
class MemoryFile {
public:
    explicit MemoryFile(std::span<const std::byte> bytes) {
        const int descriptor = ::memfd_create("input", MFD_CLOEXEC);
        demand(descriptor >= 0);
        demand(::write(descriptor, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
        auto opened = ReadOnlyFile::open("/proc/self/fd/" + std::to_string(descriptor));
        ::close(descriptor);
        demand(static_cast<bool>(opened));
        file_.emplace(std::move(*opened));
    }
    const ReadOnlyFile& get() const { return *file_; }

private:
    std::optional<ReadOnlyFile> file_;
};

}  // namespace attune::fuzz
