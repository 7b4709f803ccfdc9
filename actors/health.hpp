#pragma once

#include "attune/error.hpp"

#include <atomic>
#include <string>

namespace attune {

/// What `/ready` asks. Gateway::ready() is synchronous and may come from any thread, so these few facts are atomics
/// beside the messages that cause them.
struct Health {
    std::atomic<bool> seeded{false};  ///< the first look at the module roots is over
    std::atomic<bool> draining{false};
    std::atomic<bool> alarm{false};          ///< the base is damaged: nobody is served before it is restored
    std::atomic<bool> beyond_repair{false};  ///< with `alarm`: its source does not give what was loaded any more
    std::atomic<bool> busy{false};           ///< steps are computed one after another
    std::atomic<bool> lost{false};           ///< an actor that cannot be restarted is gone

    bool ready(std::string* why) const {
        const char* missing = nullptr;
        if (lost)
            missing = "a part of the server is gone";
        else if (alarm && beyond_repair)
            missing = "the resident base changed and could not be restored: its source has changed, too";
        else if (alarm)
            missing = "the audit found the resident base changed";
        else if (draining)
            missing = "draining";
        else if (!seeded)
            missing = "looking at the module roots";
        if (missing && why) *why = missing;
        return missing == nullptr;
    }
};

/// What requests hear after the alarm.
inline Error base_damaged() {
    return make_error(Errc::base_damaged, "the resident base has changed since it was loaded: no answers are given");
}

}  // namespace attune
