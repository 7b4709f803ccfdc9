#pragma once

#include "attune/gateway.hpp"

#include <string>
#include <vector>

namespace attune {

/// `GET /v1/models`: the base and every module that may be asked for. `root` is a name, never a path.
std::string models_body(const ServerInfo& info, const std::vector<ModuleStatus>& modules);
/// One card of the list, or nothing when `id` names neither the base nor a module.
std::string model_card(const ServerInfo& info, const std::vector<ModuleStatus>& modules, const std::string& id);

std::string module_object(const ModuleStatus& module);
std::string modules_body(const std::vector<ModuleStatus>& modules);
std::string audit_body(const AuditStatus& audit);
std::string tokenize_body(const TokenizeResult& result);
std::string detokenize_body(const std::string& prompt);

}  // namespace attune
