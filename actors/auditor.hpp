#pragma once

#include "actors/house_core.hpp"
#include "actors/interfaces.hpp"

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace attune {

/// Re-hashes the resident base: in the background at a set rate, and whole when asked. A mismatch is latched: no new
/// completion is taken until the process starts again, since what was computed meanwhile cannot be told apart.
struct AuditorState {
    static inline const char* name = "auditor";
    static constexpr std::chrono::milliseconds kTick{50};
    static constexpr std::uint64_t kSlice = 8ull << 20;  ///< bytes between two messages of a pass that was asked for

    AuditorActor::pointer self = nullptr;
    CorePtr core;

    void start();
    /// A slice of the background pass.
    void tick();
    /// A slice of a pass that was asked for.
    void step();
    void audit(bool run, const AuditReply& reply);

private:
    struct Pass {
        std::size_t tensor = 0;
        std::vector<std::string> hashes;
    };
    /// Hashes up to `budget` bytes; true when the pass is complete.
    bool advance(Pass& pass, std::uint64_t budget);
    void finish(const Pass& pass);
    void damaged(const std::string& tensor);
    void begin_asked();

    std::uint64_t tick_bytes_ = 0;
    std::uint64_t total_bytes_ = 0;
    Pass background_;
    std::optional<Pass> asked_;
    bool flush_ = false;               // a tensor is half hashed from before the pass began: its rest is not part of it
    std::vector<AuditReply> waiting_;  // for the pass that runs
    std::vector<AuditReply> later_;    // came while it ran
    std::set<std::string> damaged_;
    AuditStatus status_;
};

AuditorActor::behavior_type auditor(AuditorActor::stateful_pointer<AuditorState> self, CorePtr core);

}  // namespace attune
