#pragma once

#include "attune/settings.hpp"

#include <string>
#include <string_view>

namespace attune {

/// Whether `host` (a Host header, with or without port) is this machine itself: localhost, 127.0.0.0/8 or [::1].
bool is_loopback_host(std::string_view host);
/// Whether an address to bind is reachable from this machine only.
bool is_loopback_address(std::string_view address);

/// Host check of a server without keys: loopback or one of server.hosts. It stops other names that resolve to us (DNS
/// rebinding). Names in server.hosts match with any port unless they carry one.
bool is_host_allowed(std::string_view host, const ServerSettings& settings);

/// Origin check: the server's own (http or https, the same authority as `host`) or one of server.cors_origins.
bool is_own_origin(std::string_view origin, std::string_view host);
bool is_cors_origin(std::string_view origin, const ServerSettings& settings);

}  // namespace attune
