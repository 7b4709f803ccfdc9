#include "net/routes.hpp"

#include <array>
#include <boost/url/parse.hpp>
#include <boost/url/url_view.hpp>
#include <vector>

namespace attune {
namespace {

struct RouteRow {
    std::string_view method;
    std::string_view path;  ///< `*` is one segment: a name, or the word of an order
    RouteId id;
    Access access;
    bool is_body_optional = false;
};

constexpr std::array kRoutes{
    RouteRow{"GET", "health", RouteId::health, Access::open},
    RouteRow{"GET", "ready", RouteId::ready, Access::open},
    RouteRow{"GET", "metrics", RouteId::metrics, Access::admin},
    RouteRow{"GET", "v1/models", RouteId::models, Access::client},
    RouteRow{"GET", "v1/models/*", RouteId::model, Access::client},
    RouteRow{"POST", "v1/completions", RouteId::completions, Access::client},
    RouteRow{"POST", "v1/chat/completions", RouteId::chat, Access::client},
    RouteRow{"POST", "v1/load_lora_adapter", RouteId::load_adapter, Access::admin},
    RouteRow{"POST", "v1/unload_lora_adapter", RouteId::unload_adapter, Access::admin},
    RouteRow{"GET", "v1/modules", RouteId::modules, Access::client},
    RouteRow{"POST", "v1/modules/*/load", RouteId::module_order, Access::admin, true},
    RouteRow{"POST", "v1/modules/*/unload", RouteId::module_order, Access::admin, true},
    RouteRow{"POST", "v1/modules/*/pin", RouteId::module_order, Access::admin, true},
    RouteRow{"POST", "v1/modules/*/unpin", RouteId::module_order, Access::admin, true},
    RouteRow{"GET", "v1/routes", RouteId::routing, Access::client},
    RouteRow{"PUT", "v1/routes", RouteId::put_routing, Access::admin},
    RouteRow{"POST", "v1/routes/try", RouteId::try_routing, Access::client},
    RouteRow{"GET", "v1/audit", RouteId::audit, Access::client},
    RouteRow{"POST", "v1/audit", RouteId::audit_run, Access::admin, true},
    RouteRow{"POST", "tokenize", RouteId::tokenize, Access::client},
    RouteRow{"POST", "detokenize", RouteId::detokenize, Access::client},
    RouteRow{"GET", "v1/ws", RouteId::websocket, Access::client},
};

bool matches(std::string_view pattern, const std::vector<std::string>& segments, std::string& name) {
    for (std::size_t i = 0; i < segments.size(); ++i) {
        const std::size_t slash = pattern.find('/');
        const std::string_view part = pattern.substr(0, slash);
        if (part == "*")
            name = segments[i];
        else if (part != segments[i])
            return false;
        const bool is_last = i + 1 == segments.size();
        if (is_last != (slash == std::string_view::npos)) return false;
        if (!is_last) pattern.remove_prefix(slash + 1);
    }
    return !segments.empty();
}

ModuleOrder order_of(std::string_view word) {
    if (word == "unload") return ModuleOrder::unload;
    if (word == "pin") return ModuleOrder::pin;
    if (word == "unpin") return ModuleOrder::unpin;
    return ModuleOrder::load;
}

}  // namespace

RouteResult find_route(std::string_view method, std::string_view target) {
    RouteResult result;
    const auto url = boost::urls::parse_origin_form({target.data(), target.size()});
    if (!url) return result;
    std::vector<std::string> segments;
    for (const auto& segment : url->segments()) segments.emplace_back(segment);
    for (const auto& row : kRoutes) {
        std::string name;
        if (!matches(row.path, segments, name)) continue;
        if (row.method == method || (row.method == "GET" && method == "HEAD")) {
            result.allow.clear();  // of a row above with another method
            result.match = RouteMatch{row.id,
                                      row.access,
                                      row.method == "POST" || row.method == "PUT",
                                      row.is_body_optional,
                                      std::move(name),
                                      order_of(segments.back())};
            return result;
        }
        result.allow += (result.allow.empty() ? "" : ", ") + std::string(row.method);
    }
    return result;
}

}  // namespace attune
