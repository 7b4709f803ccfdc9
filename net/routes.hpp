#pragma once

#include "attune/gateway.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace attune {

enum class RouteId {
    health,
    ready,
    metrics,
    models,
    model,
    completions,
    chat,
    load_adapter,
    unload_adapter,
    modules,
    module_order,
    routing,
    put_routing,
    try_routing,
    audit,
    audit_run,
    tokenize,
    detokenize,
    websocket,
};

/// Who may call: anybody, even without key, from any Host; any key; an admin's key.
enum class Access { open, client, admin };

struct RouteMatch {
    RouteId id = RouteId::health;
    Access access = Access::client;
    bool has_body = false;  ///< POST, PUT: JSON expected
    bool is_body_optional = false;
    std::string name;  ///< {name} in the path, decoded
    ModuleOrder order = ModuleOrder::load;
};

struct RouteResult {
    std::optional<RouteMatch> match;
    std::string allow;  ///< methods of the path when only the method is wrong; empty: no such path
};

/// Finds what `method` on `target` (origin form, may carry a query) means.
RouteResult find_route(std::string_view method, std::string_view target);

}  // namespace attune
