#pragma once

#include "attune/gateway.hpp"
#include "attune/settings.hpp"
#include "net/body_readers.hpp"
#include "net/keys.hpp"

#include <cstddef>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace attune {

/// A client's connection as the server sees it. Any thread may call.
class Connection {
public:
    virtual ~Connection() = default;
    /// Ends after what is in progress.
    virtual void drain() = 0;
    /// Ends now; work in progress is cancelled.
    virtual void close() = 0;
};

/// What the sessions of one server share.
class ServerState {
public:
    ServerState(const ServerSettings& server, const LimitSettings& bounds, Gateway& door, KeyRing ring)
        : settings(server), limits(bounds), gateway(door), keys(std::move(ring)), body_readers(server.reading_bytes) {}

    const ServerSettings settings;
    const LimitSettings limits;
    Gateway& gateway;
    const KeyRing keys;
    BodyReaders body_readers;

    /// A connection that comes while the server drains or stops is told so at once.
    void add(const std::shared_ptr<Connection>& connection);
    void remove(const Connection* connection);
    std::size_t connections() const;
    void drain_all();
    void close_all();

private:
    mutable std::mutex mutex_;
    std::unordered_map<const Connection*, std::weak_ptr<Connection>> connections_;
    bool is_draining_ = false;
    bool is_closing_ = false;
};

}  // namespace attune
