#pragma once

#include "attune/result.hpp"
#include "attune/settings.hpp"
#include "engine/engine.hpp"
#include "engine/text/chat_template.hpp"
#include "engine/text/tokenizer.hpp"

#include <memory>

namespace attune::cli {

/// The base model ready to compute, with its text side where the model has one.
struct OpenedBase {
    std::unique_ptr<Engine> engine;
    std::shared_ptr<const Tokenizer> tokenizer;         ///< null: the model has none
    std::shared_ptr<const ChatTemplate> chat_template;  ///< null: it has none
};

/// Reads the model of settings.model.path. Takes seconds to minutes; logs where it is. `park_preempted`: for a House,
/// which brings the modules of preempted requests back.
Result<OpenedBase> open_base(const Settings& settings, bool park_preempted = false);

/// settings.model.id, or the name of the folder, or of the GGUF file without its ending.
std::string base_id(const Settings& settings);

}  // namespace attune::cli
