#include "engine/text/jinja/folding.hpp"

#include "engine/text/jinja/error.hpp"
#include "engine/text/jinja/expressions.hpp"

#include <algorithm>

namespace attune::jinja {
namespace {

/// Of one whole template, so that none takes long to parse or keeps much: constants of more are made when they are
/// reached, under the limits of a rendering.
constexpr Limits kBudget{20'000, std::size_t{16} << 10, 500, 1000};

/// What never changes and holds nothing that does, and is not long when it is written out.
bool is_plain(const Value& value, std::size_t& bytes_left, int depth) {
    constexpr int kMaxDepth = 50;
    constexpr std::size_t kItemBytes = 8;
    const std::size_t bytes = kItemBytes + (value.is_text() ? value.bytes().size() : 0);
    if (depth > kMaxDepth || bytes > bytes_left) return false;
    bytes_left -= bytes;
    if (value.is_text() || value.is_none() || value.is_number()) return true;
    const auto is_plain_part = [&](const Value& part) { return is_plain(part, bytes_left, depth + 1); };
    if (value.is_list_or_tuple()) {
        const auto items = value.list().items;
        return std::all_of(items.begin(), items.end(), is_plain_part);
    }
    if (!value.is_dict()) return false;
    const auto entries = value.dict().entries();
    return std::all_of(entries.begin(), entries.end(), [&](const Dict::Entry& entry) {
        return is_plain_part(entry.key) && is_plain_part(entry.value);
    });
}

bool is_plain(const Value& value) {
    std::size_t bytes_left = kBudget.output_bytes;
    return is_plain(value, bytes_left, 0);
}

}  // namespace

ConstantFolder::ConstantFolder(Arena& arena) : context_(arena, kBudget, root_, never_) {}

ExpressionPtr ConstantFolder::folded(std::unique_ptr<Expression> made) {
    try {
        const Value value = made->evaluate(context_);
        if (is_plain(value)) return std::make_unique<Constant>(value);
        made->mark_fixed();
    } catch (const Failure&) {  // left for the rendering, see above
    }
    return made;
}

ExpressionPtr ConstantFolder::shown(ExpressionPtr value) {
    const Value* constant = value->constant();
    if (constant == nullptr || constant->is_text() || !is_plain(*constant)) return value;
    return std::make_unique<Constant>(to_text(context_.arena, *constant));
}

}  // namespace attune::jinja
