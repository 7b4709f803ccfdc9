#pragma once

#include "actors/house_core.hpp"
#include "actors/interfaces.hpp"

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace attune {

/// Re-hashes the resident base: in the background at a set rate, and whole when asked. A mismatch is an alarm: nobody
/// is served, the whole base is looked at, and the executor restores what is damaged from its source. Where that fails
/// the alarm stays; each further pass that is asked for tries again.
struct AuditorState {
    static inline const char* name = "auditor";
    static constexpr std::chrono::milliseconds kTick{50};
    static constexpr std::uint64_t kSlice = 8ull << 20;  ///< bytes between two messages of a pass that was asked for

    AuditorActor::pointer self = nullptr;
    CorePtr core;
    PeersPtr peers;

    void start();
    void wire(const PeersPtr& all);
    /// A slice of the background pass.
    void tick();
    /// A slice of a pass that was asked for.
    void step();
    void audit(bool run, const AuditReply& reply);
    /// The executor met a tensor that is not what was loaded.
    void told(const std::string& text);

private:
    struct Pass {
        std::size_t tensor = 0;
        std::optional<TimePoint> begun;  // when the tensor's first byte was hashed
        std::vector<std::string> hashes;
    };
    /// Hashes up to `budget` bytes; true when the pass is complete.
    bool advance(Pass& pass, std::uint64_t budget);
    void finish(const Pass& pass);
    void damaged(std::size_t tensor);
    void raise(const std::string& text);
    void order_repair();
    void repaired(bool done, const std::string& why);
    const char* good_state() const { return status_.checkpoint.empty() ? "assumed" : "verified"; }
    void begin_asked();
    /// Those who asked meanwhile.
    void next();

    std::uint64_t tick_bytes_ = 0;
    std::uint64_t total_bytes_ = 0;
    Pass background_;
    std::optional<Pass> asked_;
    bool flush_ = false;               // a tensor is half hashed from before the pass began: its rest is not part of it
    std::vector<AuditReply> waiting_;  // for the pass that runs
    std::vector<AuditReply> later_;    // came while it ran
    std::set<std::size_t> damaged_;    // tensors
    std::vector<TimePoint> good_;      // per tensor: when it was last known to be right; the epoch: at its load
    bool repairing_ = false;
    AuditStatus status_;
};

AuditorActor::behavior_type auditor(AuditorActor::stateful_pointer<AuditorState> self, CorePtr core);

}  // namespace attune
