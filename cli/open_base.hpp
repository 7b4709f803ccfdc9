#pragma once

#include "attune/result.hpp"
#include "attune/settings.hpp"
#include "engine/engine.hpp"
#include "engine/text/chat_template.hpp"
#include "engine/text/tokenizer.hpp"

#include <memory>

namespace attune::cli {

/// The base model ready to compute, with its text side where the folder has one.
struct OpenedBase {
    std::unique_ptr<Engine> engine;
    std::shared_ptr<const Tokenizer> tokenizer;         ///< null: the folder has no tokenizer.json
    std::shared_ptr<const ChatTemplate> chat_template;  ///< null: it has no template
};

/// Reads the model of settings.model.path. Takes seconds to minutes; logs where it is.
Result<OpenedBase> open_base(const Settings& settings);

/// settings.model.id, or the folder's name.
std::string base_id(const Settings& settings);

}  // namespace attune::cli
