#pragma once

#include "attune/result.hpp"
#include "engine/model/model_config.hpp"

#include <nlohmann/json_fwd.hpp>

namespace attune {

struct ParsedRope {
    RopeConfig rope;
    bool dynamic = false;  ///< the unscaled table holds up to max_position_embeddings only
};

/// The rope part of config.json in either spelling: `rope_theta` + `rope_scaling`, or `rope_parameters`.
Result<ParsedRope> parse_rope(const nlohmann::json& config);

}  // namespace attune
