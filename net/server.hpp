#pragma once

#include "attune/gateway.hpp"
#include "attune/result.hpp"
#include "attune/settings.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace attune {

/// The HTTP and WebSocket door: a listener and its sessions on `settings.threads` threads of its own.
class Server {
public:
    /// Binds and starts accepting. Errors name host and port, the keys file's fault, or a refused non-loopback bind.
    static Result<std::unique_ptr<Server>> listen(const ServerSettings& settings, const LimitSettings& limits,
                                                  Gateway& gateway);
    virtual ~Server() = default;

    virtual std::uint16_t port() const = 0;
    /// No new connections; answers in progress go on, kept-alive connections close after theirs.
    virtual void stop_accepting() = 0;
    /// Connections still open. After stop_accepting() each leaves once its last byte is written.
    virtual std::size_t connections() const = 0;
    /// Closes everything and joins the threads. Called by the destructor too.
    virtual void stop() = 0;
};

}  // namespace attune
