#include "actors/resolve_modules.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

namespace attune {
namespace {

Error refuse(std::string text) { return make_error(Errc::invalid_argument, std::move(text), "modules"); }

struct Resolver {
    struct Item {
        double weight = 1.0;
        int order = 0;
        std::vector<std::string> needs;  ///< by name; all are among the items
    };

    std::size_t limit;
    const FindModule& find;
    std::optional<Combine> own_combine;  ///< the request's
    std::map<std::string, Item> items;
    std::map<std::string, const ModuleHeader*> headers;
    std::vector<std::string> path;  ///< who requires whom, down to the module looked at
    std::set<std::string> done;
    ResolvedModules out;

    Result<void> add(const std::string& name, double weight, const ModuleHeader* header) {
        if (!std::isfinite(weight) || std::abs(weight) > kLargestWeight)
            return refuse("the weight of `" + name + "` comes out beyond " +
                          std::to_string(static_cast<int>(kLargestWeight)));
        const auto found = items.find(name);
        if (found != items.end() && found->second.weight != weight)
            return refuse("module `" + name + "` is named twice, with different weights");
        if (found == items.end() && items.size() >= limit)
            return refuse("at most " + std::to_string(limit) +
                          " modules may act in a request, members and required ones included: `" + name +
                          "` is one too many");
        items[name] = Item{weight, header != nullptr ? header->order : 0, {}};
        headers[name] = header;
        return {};
    }

    Result<void> expand(const WeightedModule& asked) {
        auto known = find(asked.name);
        if (!known) return known.error();
        const ModuleHeader* header = known->header;
        if (header == nullptr || header->members.empty()) return add(asked.name, asked.weight, header);
        if (!own_combine && out.combine && *out.combine != header->combine)
            return refuse("composition `" + asked.name +
                          "` combines its members in another way than the one before: say which with `combine`");
        out.combine = own_combine.value_or(header->combine);
        for (const WeightedModule& one : header->members) {
            auto member = find(one.name);
            if (!member)
                return make_error(
                    member.error().code,
                    "composition `" + asked.name + "`, member `" + one.name + "`: " + member.error().message,
                    "modules");
            if (member->header != nullptr && !member->header->members.empty())
                return refuse("composition `" + asked.name + "` has the member `" + one.name +
                              "`, which is a composition too");
            if (auto added = add(one.name, asked.weight * one.weight, member->header); !added) return added;
        }
        return {};
    }

    /// Depth is bounded by `limit`: each name on the path is an item.
    Result<void> require(const std::string& name) {
        if (done.contains(name)) return {};
        const ModuleHeader* header = headers[name];
        if (header == nullptr || items[name].weight == 0) return {};
        path.push_back(name);
        for (const Requirement& need : header->needs) {
            if (const auto start = std::find(path.begin(), path.end(), need.name); start != path.end()) {
                std::string text = "modules require each other in a circle: ";
                for (auto one = start; one != path.end(); ++one) text += "`" + *one + "`, ";
                return refuse(text + "`" + need.name + "`");
            }
            auto known = find(need.name);
            if (!known)
                return make_error(known.error().code,
                                  "module `" + name + "` requires `" + need.name + "`: " + known.error().message,
                                  "modules");
            if (known->header != nullptr && !known->header->members.empty())
                return refuse("module `" + name + "` requires `" + need.name + "`, which is a composition");
            const std::string version = known->header != nullptr ? known->header->version : "";
            if (!need.pin.empty() && need.pin != version && need.pin != known->generation) {
                const RequiredGeneration wanted{name, need.name, need.pin};
                const bool may_be_generation = need.pin.size() == 64 && known->generation.empty();
                if (!may_be_generation) return wrong_pin(wanted, version, known->generation);
                out.unchecked.push_back(wanted);
            }
            if (!items.contains(need.name))
                if (auto added = add(need.name, 1.0, known->header); !added) return added;
            items[name].needs.push_back(need.name);
            if (auto deeper = require(need.name); !deeper) return deeper;
        }
        path.pop_back();
        done.insert(name);
        return {};
    }

    /// Of those whose needs have been placed, the one with the lowest (order, name); a few items at most.
    void place() {
        std::set<std::string> placed;
        while (placed.size() < items.size()) {
            const std::pair<const std::string, Item>* next = nullptr;
            for (const auto& item : items) {
                const auto& needs = item.second.needs;
                const bool free = std::all_of(needs.begin(), needs.end(), [&](auto& n) { return placed.contains(n); });
                if (placed.contains(item.first) || !free) continue;
                if (next == nullptr || item.second.order < next->second.order) next = &item;
            }
            if (next == nullptr) return;  // a circle, which require() has refused
            placed.insert(next->first);
            out.modules.push_back(WeightedModule{next->first, next->second.weight});
        }
    }
};

}  // namespace

Error wrong_pin(const RequiredGeneration& wanted, const std::string& version, const std::string& generation) {
    std::string there = version.empty() ? "no version" : "version " + version;
    if (!generation.empty()) there += ", generation " + generation;
    return refuse("module `" + wanted.by + "` requires `" + wanted.name + "@" + wanted.pin + "`, but `" + wanted.name +
                  "` has " + there);
}

Result<ResolvedModules> resolve_modules(const std::vector<WeightedModule>& asked, int limit, const FindModule& find,
                                        std::optional<Combine> combine) {
    Resolver resolver{static_cast<std::size_t>(std::max(limit, 0)), find, combine, {}, {}, {}, {}, {}};
    for (const WeightedModule& one : asked)
        if (auto added = resolver.expand(one); !added) return added.error();
    std::vector<std::string> named;
    for (const auto& [name, unused] : resolver.items) named.push_back(name);
    for (const std::string& name : named)
        if (auto required = resolver.require(name); !required) return required.error();
    resolver.place();
    return std::move(resolver.out);
}

}  // namespace attune
