#include "net/keys.hpp"

#include "attune/toml_bytes.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <fstream>
#include <sstream>
#include <toml_parser.hpp>

namespace attune {
namespace {

using Digest = std::array<unsigned char, 32>;

Digest sha256(std::string_view text) {
    Digest digest{};
    unsigned int length = 0;
    EVP_Digest(text.data(), text.size(), digest.data(), &length, EVP_sha256(), nullptr);
    return digest;
}

Error fault(const std::string& what) { return make_error(Errc::invalid_argument, "server.keys_file: " + what); }

std::optional<int> hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return std::nullopt;
}

std::optional<Digest> digest_of_entry(std::string_view key) {
    constexpr std::string_view kPrefix = "sha256:";
    if (!key.starts_with(kPrefix)) return sha256(key);
    key.remove_prefix(kPrefix.size());
    Digest digest{};
    if (key.size() != 2 * digest.size()) return std::nullopt;
    for (std::size_t i = 0; i < digest.size(); ++i) {
        const auto high = hex_digit(key[2 * i]);
        const auto low = hex_digit(key[2 * i + 1]);
        if (!high || !low) return std::nullopt;
        digest[i] = static_cast<unsigned char>(*high * 16 + *low);
    }
    return digest;
}

}  // namespace

Result<KeyRing> KeyRing::parse(const std::string& text) {
    if (const auto bad = find_toml_fault(text)) return fault("line " + std::to_string(bad->line) + ": " + bad->what);
    toml::table table;
    try {
        table = toml::parse(text);
    } catch (const toml::parse_error& error) {
        return fault("line " + std::to_string(error.source().begin.line) + ": " + std::string(error.description()));
    }
    KeyRing ring;
    ring.required_ = true;
    for (const auto& [role, value] : table) {
        const std::string role_name(role.str());
        const bool is_admin = role_name == "admin";
        if (!is_admin && role_name != "client") return fault("unknown list `" + role_name + "`: client or admin");
        const auto* list = value.as_array();
        if (list == nullptr) return fault("`" + role_name + "` must be a list");
        for (std::size_t i = 0; i < list->size(); ++i) {
            const std::string where = role_name + "[" + std::to_string(i) + "]";
            const auto& item = (*list)[i];
            const auto* entry = item.as_table();
            const auto key = entry == nullptr ? item.value<std::string>() : (*entry)["key"].value<std::string>();
            if (!key || key->empty()) return fault(where + " needs a key: \"KEY\", \"sha256:HEX\" or { key, name }");
            const auto digest = digest_of_entry(*key);
            if (!digest) return fault(where + ": sha256: wants 64 hex digits");
            std::string name = entry == nullptr ? "" : (*entry)["name"].value_or<std::string>("");
            ring.entries_.push_back({*digest, Caller{std::move(name), is_admin}});
        }
    }
    if (ring.entries_.empty()) return fault("holds no key");
    return ring;
}

Result<KeyRing> KeyRing::open(const std::string& path) {
    std::ifstream file(path);
    if (!file) return fault("cannot be read");
    std::stringstream text;
    text << file.rdbuf();
    return parse(text.str());
}

std::optional<Caller> KeyRing::find(std::string_view key) const {
    if (!required_) return Caller{};
    const Digest digest = sha256(key);
    std::optional<Caller> found;
    for (const auto& entry : entries_) {
        const bool same = CRYPTO_memcmp(digest.data(), entry.digest.data(), digest.size()) == 0;
        // An admin's key that is also listed as a client's keeps its rights.
        if (same && (!found || entry.caller.admin)) found = entry.caller;
    }
    return found;
}

}  // namespace attune
