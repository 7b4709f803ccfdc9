// Method and target, then NUL and a header value: what the server reads of a head beside Beast.
#include "fuzz/fuzz_input.hpp"
#include "net/origin.hpp"
#include "net/routes.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace attune;
    const auto [line, value] = fuzz::split_at_nul(fuzz::text_of(data, size));
    const std::size_t space = line.find(' ');
    const std::string_view method = line.substr(0, space);
    const std::string_view target = space == std::string_view::npos ? std::string_view() : line.substr(space + 1);
    const RouteResult found = find_route(method, target);
    fuzz::demand(!found.match || found.allow.empty());
    ServerSettings settings;
    settings.hosts = {"attune.example", "[::2]:80"};
    settings.cors_origins = {"https://chat.example"};
    (void)is_host_allowed(value, settings);
    (void)is_loopback_host(value);
    (void)is_loopback_address(value);
    (void)is_cors_origin(value, settings);
    (void)is_own_origin(value, target);
    return 0;
}
