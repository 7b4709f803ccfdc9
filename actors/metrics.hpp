#pragma once

#include "attune/gateway.hpp"
#include "attune/settings.hpp"
#include "engine/engine.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace attune {

/// Everything `/metrics` shows, in prometheus-cpp's registry. Thread-safe: actors write from their own threads.
class Metrics {
public:
    Metrics(const ServerInfo& info, const Settings& settings, const EngineStats& stats);
    ~Metrics();
    Metrics(const Metrics&) = delete;
    Metrics& operator=(const Metrics&) = delete;

    // executor
    void step(const StepReport& report, const EngineStats& stats);
    void ended(const EndedRequest& request);
    void step_failed();
    // router
    void admitted(int n, int max_tokens, bool streamed);
    void rejected(const std::string& reason);
    /// Names with requests in flight, and requests that are not in the engine yet.
    void requests(const std::vector<std::string>& running, const std::vector<std::string>& waiting, int queued);
    void cold(const std::string& word);
    /// New rules were taken or refused; they came from the file or from a request.
    void routes(bool from_file, bool taken);
    /// The rules chose for a request, after so many searches for patterns were given up.
    void routed(const std::string& rule, int patterns_over_limit);
    // cache_manager
    struct Loaded {
        std::string name;
        bool resident = false;
        bool pinned = false;
    };
    struct Tiers {
        int cold = 0, loading = 0, host = 0, resident = 0, failed = 0;
        int pinned = 0;
        int leases = 0;
        int resident_generations = 0;
        int retired_generations = 0;
        std::uint64_t host_used = 0, host_capacity = 0, device_used = 0, device_capacity = 0;
        std::vector<Loaded> loaded;
    };
    void tiers(const Tiers& tiers);
    void loaded(const std::string& outcome, double seconds);
    /// A module that was in memory before was read again.
    void reloaded(const std::string& module);
    void evicted(const std::string& from);
    void swapped();
    void refused(int modules);
    // trigger
    /// What it wants done (prefetch, unload) and why.
    void decided(const std::string& what, const std::string& reason);
    // auditor
    void audit_pass(bool clean);
    void alarm();
    void repaired();
    // supervisor
    void restarted(const std::string& actor);

    /// Prometheus text format.
    std::string text() const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace attune
