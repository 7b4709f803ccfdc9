#pragma once

#include "actors/prepare.hpp"
#include "attune/gateway.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace attune {

using Rules = std::shared_ptr<const std::vector<RouteRule>>;

/// The rules in force and where they come from: the file's or a request's, those of trusted manifests behind them, and
/// the settings' default. A refused file changes nothing but what status() says.
class RouteBook {
public:
    void set_default(const std::string& module) {
        default_ = module;
        rebuild();
    }
    /// `now`: Unix seconds.
    void take(const RoutesNews& news, std::int64_t now);
    void set_manifest_rules(const Rules& rules);

    const RouteTablePtr& table() const { return table_; }
    /// Rules of other owners and other users' preferences are left out unless the caller is an admin.
    RoutesStatus status(const Caller& caller, const RouteSource& source) const;
    /// A look whether the file has changed.
    RoutesTask look() const { return {std::nullopt, last_read_, stamp_}; }

private:
    void rebuild();
    RouteSetPtr with_what_was_learned(const RouteSetPtr& next) const;

    RouteSetPtr rules_ = std::make_shared<const RouteSet>();
    RouteSetPtr last_read_;  ///< what the file said, also while a request's rules are in force
    Rules manifest_rules_;
    std::string default_;
    RouteTablePtr table_ = std::make_shared<const RouteTable>();
    std::string source_ = "none";
    std::string stamp_;
    std::int64_t since_ = 0;
    std::string last_error_;
    std::int64_t failed_at_ = 0;
};

/// Why a request gets what it gets, in one sentence.
std::string explanation_of(const RouteDecision& decision);

}  // namespace attune
