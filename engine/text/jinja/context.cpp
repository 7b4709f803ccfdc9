#include "engine/text/jinja/context.hpp"

#include "engine/text/jinja/error.hpp"
#include "engine/text/jinja/operations.hpp"

namespace attune::jinja {
namespace {

/// Copying and scanning this much costs about as much as one node.
constexpr std::size_t kBytesPerStep = 256;

}  // namespace

const Value* Scope::find(Symbol name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
        for (const auto& [symbol, value] : scope->names) {
            if (symbol == name) return &value;
        }
    }
    return nullptr;
}

void Scope::set(Symbol name, Value value) {
    for (auto& [symbol, old] : names) {
        if (symbol == name) {
            old = std::move(value);
            return;
        }
    }
    names.emplace_back(name, std::move(value));
}

Context::Context(const Limits& limits, std::shared_ptr<Scope> root, std::tm now)
    : scope(root), limits_(limits), steps_(limits.steps), root_(std::move(root)), now_(now) {}

Context::~Context() {
    for (const auto& ring : rings_) {
        if (const auto held = ring.lock()) held->names.clear();
    }
    for (const auto& space : spaces_) {
        if (const auto held = space.lock()) held->attributes = {};
    }
}

void Context::will_cut(const std::shared_ptr<Scope>& ring) {
    if (rings_.empty() || rings_.back().lock() != ring) rings_.push_back(ring);
}

void Context::will_cut(const std::shared_ptr<Namespace>& space) { spaces_.push_back(space); }

void Context::charge_bytes(std::size_t bytes) {
    if (bytes > limits_.output_bytes) throw Failure("OverflowError", "the template makes too large a text");
    charge(static_cast<std::int64_t>(bytes / kBytesPerStep));
}

void Context::emit(const Value& value) {
    if (value.is_text() && !autoescape) {
        emit(value.text());
        return;
    }
    const Text text = to_text(value);
    emit(autoescape && !text.markup ? escape_html(text) : text);
}

void Context::emit(const Text& text) {
    charge_bytes(output->size() + text.bytes.size() > limits_.output_bytes ? limits_.output_bytes + 1
                                                                           : text.bytes.size());
    output->append(text);
}

void Context::out_of_steps() const { throw Failure("TimeoutError", "the template takes too many steps"); }

void Context::too_deep() const { throw Failure("RecursionError", "the template is nested too deeply"); }

}  // namespace attune::jinja
