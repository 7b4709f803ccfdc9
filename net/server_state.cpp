#include "net/server_state.hpp"

namespace attune {

void ServerState::add(const std::shared_ptr<Connection>& connection) {
    const std::lock_guard lock(mutex_);
    connections_.emplace(connection.get(), connection);
    if (is_closing_)
        connection->close();
    else if (is_draining_)
        connection->drain();
}

void ServerState::remove(const Connection* connection) {
    const std::lock_guard lock(mutex_);
    connections_.erase(connection);
}

std::size_t ServerState::connections() const {
    const std::lock_guard lock(mutex_);
    return connections_.size();
}

void ServerState::drain_all() {
    const std::lock_guard lock(mutex_);
    is_draining_ = true;
    for (const auto& [key, weak] : connections_)
        if (const auto connection = weak.lock()) connection->drain();
}

void ServerState::close_all() {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
    for (const auto& [key, weak] : connections_)
        if (const auto connection = weak.lock()) connection->close();
}

}  // namespace attune
