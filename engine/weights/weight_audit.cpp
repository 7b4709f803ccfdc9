#include "engine/weights/weight_audit.hpp"

#include "engine/files/hash.hpp"

#include <algorithm>
#include <mutex>
#include <optional>

namespace attune {

namespace {

class WeightAudit final : public BaseAudit {
public:
    WeightAudit(const std::vector<std::shared_ptr<Weight>>& weights, std::string checkpoint)
        : checkpoint_(std::move(checkpoint)) {
        for (const auto& weight : weights) {
            for (std::size_t part = 0; part < weight->parts(); ++part) entries_.push_back({weight, part});
        }
        std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.name() < b.name(); });
        cursors_ = std::make_unique<Cursor[]>(entries_.size());
    }

    std::size_t tensors() const override { return entries_.size(); }
    const std::string& name(std::size_t tensor) const override { return entries_.at(tensor).name(); }
    std::uint64_t bytes(std::size_t tensor) const override {
        const Entry& entry = entries_.at(tensor);
        return entry.weight->part_bytes(entry.part);
    }
    const std::string& expected(std::size_t tensor) const override {
        const Entry& entry = entries_.at(tensor);
        return entry.weight->expected(entry.part);
    }
    const std::string& checkpoint() const override { return checkpoint_; }

    Progress hash_some(std::size_t tensor, std::uint64_t budget) override {
        const Entry& entry = entries_.at(tensor);
        Cursor& cursor = cursors_[tensor];
        const std::lock_guard lock(cursor.mutex);
        if (!cursor.hash || cursor.meant.epoch != entry.weight->epoch(entry.part)) restart(cursor, entry);

        Progress progress;
        const std::uint64_t total = entry.weight->part_bytes(entry.part);
        const std::uint64_t count = std::min(budget, total - cursor.offset);
        const bool steady =
            entry.weight->visit_bytes(entry.part, cursor.offset, count, cursor.meant.epoch, [&](auto bytes) {
                cursor.hash->update(bytes);
                cursor.offset += bytes.size();
                progress.bytes += bytes.size();
            });
        if (!steady) {  // rewritten meanwhile: what was hashed belongs to no one state
            cursor.hash.reset();
            return progress;
        }
        if (cursor.offset == total) {
            progress.complete = true;
            progress.hash = cursor.hash->hex();
            cursor.hash.reset();
            // A merged tensor that is what its merge made of it counts as its base value. Compared with what was meant
            // when the hash began: it may have been rewritten since the last slice.
            if (progress.hash == cursor.meant.hash) progress.hash = entry.weight->expected(entry.part);
        }
        return progress;
    }

    Result<void> restore(std::size_t tensor) override {
        const Entry& entry = entries_.at(tensor);
        return entry.weight->restore(entry.part);
    }

    void flip_bit(std::size_t tensor, std::uint64_t byte) override {
        const Entry& entry = entries_.at(tensor);
        entry.weight->flip_bit(entry.part, byte);
    }

private:
    struct Entry {
        std::shared_ptr<Weight> weight;
        std::size_t part = 0;
        const std::string& name() const { return weight->part(part).name; }
    };
    /// Where the last call for a tensor stopped.
    struct Cursor {
        std::mutex mutex;
        std::optional<Xxh128> hash;
        std::uint64_t offset = 0;
        Weight::Meant meant;
    };

    static void restart(Cursor& cursor, const Entry& entry) {
        cursor.hash.emplace();
        cursor.offset = 0;
        cursor.meant = entry.weight->meant(entry.part);
    }

    std::vector<Entry> entries_;
    std::unique_ptr<Cursor[]> cursors_;
    std::string checkpoint_;
};

}  // namespace

std::string BaseAudit::combine(const std::vector<std::string>& hashes) {
    Xxh128 all;
    for (const std::string& hash : hashes) all.update(std::as_bytes(std::span(hash)));
    return all.hex();
}

std::shared_ptr<BaseAudit> make_base_audit(const std::vector<std::shared_ptr<Weight>>& weights,
                                           std::string checkpoint) {
    return std::make_shared<WeightAudit>(weights, std::move(checkpoint));
}

}  // namespace attune
