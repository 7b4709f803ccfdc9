#include "engine/files/byte_reader.hpp"

#include <algorithm>
#include <utility>

namespace attune {

ByteReader::ByteReader(Fetch fetch, std::uint64_t end, Seen seen)
    : fetch_(std::move(fetch)), seen_(std::move(seen)), end_(end) {}

bool ByteReader::read(std::span<std::byte> into) {
    if (into.size() > left()) return false;
    while (!into.empty()) {
        if (used_ == filled_ && !refill()) return false;
        const std::size_t count = std::min(into.size(), filled_ - used_);
        std::memcpy(into.data(), buffer_.data() + used_, count);
        used_ += count;
        into = into.subspan(count);
    }
    return true;
}

bool ByteReader::refill() {
    finish();
    filled_ = used_ = 0;
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(buffer_.size(), end_ - fetched_));
    if (auto fetched = fetch_(fetched_, std::span(buffer_).first(count)); !fetched) {
        error_ = std::move(fetched).error();
        end_ = fetched_;  // nothing is left
        return false;
    }
    fetched_ += count;
    filled_ = count;
    return true;
}

void ByteReader::finish() {
    if (seen_ && used_ > 0) seen_(std::span(buffer_).first(used_));
}

}  // namespace attune
