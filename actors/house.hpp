#pragma once

#include "actors/prepare.hpp"
#include "attune/clock.hpp"
#include "attune/gateway.hpp"
#include "attune/result.hpp"
#include "attune/settings.hpp"
#include "engine/engine.hpp"
#include "engine/text/chat_template.hpp"
#include "engine/text/tokenizer.hpp"

#include <chrono>
#include <functional>
#include <memory>

namespace attune {

/// What the house is built from; cli/serve.cpp makes it.
struct HouseParts {
    std::unique_ptr<Engine> engine;
    std::shared_ptr<const Tokenizer> tokenizer;         ///< null: token-id prompts only
    std::shared_ptr<const ChatTemplate> chat_template;  ///< null: no chat
    RouteSource routes;                                 ///< empty: no rules, none can be put in force
};

/// All actors of one server, behind the Gateway. No CAF type in this header: cli and net never see CAF.
class House {
public:
    /// `settings.model.id` is set: the name by which clients ask for the plain base.
    static Result<std::unique_ptr<House>> start(const Settings& settings, HouseParts parts);
    virtual ~House() = default;

    virtual Gateway& gateway() = 0;
    /// SIGHUP: rereads routes and module roots. Any thread; what failed is logged and the last good state stays.
    virtual void reload() = 0;
    /// Refuses new requests, waits until the running ones ended or the time is over. True when all ended.
    virtual bool drain(std::chrono::milliseconds limit) = 0;
    /// Cancels what is left and stops every actor. Called by the destructor too.
    virtual void stop() = 0;
};

}  // namespace attune
