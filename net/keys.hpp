#pragma once

#include "attune/request.hpp"
#include "attune/result.hpp"

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attune {

/// The keys of `server.keys_file`: SHA-256 digests with a role and perhaps a name.
class KeyRing {
public:
    /// No keys: every caller is an unnamed admin.
    KeyRing() = default;
    /// TOML: `client = [..]`, `admin = [..]` of "KEY", "sha256:HEX" or { key = …, name = "…" }. Errors name the entry,
    /// neither a key nor the file's path.
    static Result<KeyRing> parse(const std::string& toml);
    static Result<KeyRing> open(const std::string& path);

    bool is_required() const { return required_; }
    /// Who presents this key; every entry is compared, in constant time.
    std::optional<Caller> find(std::string_view key) const;

private:
    using Digest = std::array<unsigned char, 32>;
    struct Entry {
        Digest digest{};
        Caller caller;
    };

    std::vector<Entry> entries_;
    bool required_ = false;
};

}  // namespace attune
