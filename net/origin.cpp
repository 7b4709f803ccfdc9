#include "net/origin.hpp"

#include <algorithm>
#include <array>
#include <charconv>

namespace attune {
namespace {

bool same_text(std::string_view a, std::string_view b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
        const auto lower = [](unsigned char c) { return c >= 'A' && c <= 'Z' ? c + 32 : int{c}; };
        return lower(x) == lower(y);
    });
}

bool is_port(std::string_view text) {
    return !text.empty() && text.size() <= 5 && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// The host without its port; empty when the port is none.
std::string_view without_port(std::string_view host) {
    const std::size_t colon = host.rfind(':');
    const bool is_ipv6_without_port = !host.empty() && host.back() == ']';
    if (colon == std::string_view::npos || is_ipv6_without_port) return host;
    return is_port(host.substr(colon + 1)) ? host.substr(0, colon) : std::string_view{};
}

bool is_loopback_ipv4(std::string_view text) {
    std::array<int, 4> parts{};
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const std::size_t dot = i < 3 ? text.find('.') : text.size();
        if (dot == std::string_view::npos || dot == 0 || dot > 3) return false;
        const auto [end, failure] = std::from_chars(text.data(), text.data() + dot, parts[i]);
        if (failure != std::errc{} || end != text.data() + dot || parts[i] > 255) return false;
        text.remove_prefix(i < 3 ? dot + 1 : dot);
    }
    return parts[0] == 127;
}

}  // namespace

bool is_loopback_host(std::string_view host) {
    const std::string_view name = without_port(host);
    return same_text(name, "localhost") || name == "[::1]" || is_loopback_ipv4(name);
}

bool is_loopback_address(std::string_view address) {
    return same_text(address, "localhost") || address == "::1" || is_loopback_ipv4(address);
}

bool is_host_allowed(std::string_view host, const ServerSettings& settings) {
    if (is_loopback_host(host)) return true;
    return std::any_of(settings.hosts.begin(), settings.hosts.end(), [&](const std::string& allowed) {
        return same_text(host, allowed) || same_text(without_port(host), allowed);
    });
}

bool is_own_origin(std::string_view origin, std::string_view host) {
    for (const std::string_view scheme : {"http://", "https://"})
        if (origin.starts_with(scheme)) return !host.empty() && same_text(origin.substr(scheme.size()), host);
    return false;
}

bool is_cors_origin(std::string_view origin, const ServerSettings& settings) {
    return std::find(settings.cors_origins.begin(), settings.cors_origins.end(), origin) != settings.cors_origins.end();
}

}  // namespace attune
