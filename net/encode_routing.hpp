#pragma once

#include "attune/gateway.hpp"

#include <string>

namespace attune {

/// `GET /v1/routes`; its `routes` are what `PUT /v1/routes` takes.
std::string routing_body(const RoutesStatus& status);
/// `POST /v1/routes/try`.
std::string route_trial_body(const RouteTrial& trial);

}  // namespace attune
