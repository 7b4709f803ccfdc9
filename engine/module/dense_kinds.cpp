// Kinds that change the weight as a whole: LoKr, OFT, BOFT. (MiSS bat is with MiSS.)

#include "engine/module/site_input.hpp"

#include "engine/files/quote.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

namespace attune {
namespace {

std::size_t index(std::int64_t at) { return static_cast<std::size_t>(at); }

/// a [n, k] x b [k, m], row-major.
std::vector<float> multiply(const std::vector<float>& a, const std::vector<float>& b, std::int64_t k, std::int64_t m) {
    const auto n = static_cast<std::int64_t>(a.size()) / k;
    std::vector<float> out(index(n * m));
    for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t l = 0; l < k; ++l)
            for (std::int64_t j = 0; j < m; ++j) out[index(i * m + j)] += a[index(i * k + l)] * b[index(l * m + j)];
    return out;
}

/// One factor of a Kronecker product: given whole, or as two thin matrices.
struct Factor {
    const StoredTensor* whole = nullptr;
    const StoredTensor* left = nullptr;   // [rows, r]
    const StoredTensor* right = nullptr;  // [r, columns]
    std::int64_t rows = 0;
    std::int64_t columns = 0;

    std::vector<float> read(TensorValues& values) const {
        if (whole != nullptr) return std::move(values[whole]);
        return multiply(values[left], values[right], left->shape[1], columns);
    }
};

Result<Factor> factor(SiteInput& input, const char* whole, const char* left, const char* right) {
    Factor out;
    if (input.has(whole)) {
        const auto tensor = input.need(whole, {-1, -1});
        if (!tensor) return tensor.error();
        out.whole = *tensor;
        out.rows = (*tensor)->shape[0];
        out.columns = (*tensor)->shape[1];
        return out;
    }
    const auto a = input.need(left, {-1, -1});
    if (!a) return a.error();
    const auto b = input.need(right, {(*a)->shape[1], -1});
    if (!b) return b.error();
    out.left = *a;
    out.right = *b;
    out.rows = (*a)->shape[0];
    out.columns = (*b)->shape[1];
    return out;
}

/// X with X (I + Q) = I - Q, [n, n], in double: Cayley's rotation of a skew Q. Nothing when I + Q is singular, which
/// no skew matrix is.
std::optional<std::vector<double>> cayley(const std::vector<double>& q, std::int64_t n) {
    // (I + Q)^T X^T = (I - Q)^T, by elimination with the largest pivot of each column.
    std::vector<double> left(index(n * n));
    std::vector<double> right(index(n * n));
    for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
            const double one = i == j ? 1.0 : 0.0;
            left[index(i * n + j)] = one + q[index(j * n + i)];
            right[index(i * n + j)] = one - q[index(j * n + i)];
        }
    for (std::int64_t c = 0; c < n; ++c) {
        std::int64_t pivot = c;
        for (std::int64_t i = c + 1; i < n; ++i)
            if (std::abs(left[index(i * n + c)]) > std::abs(left[index(pivot * n + c)])) pivot = i;
        if (left[index(pivot * n + c)] == 0.0) return std::nullopt;
        for (std::int64_t j = 0; j < n; ++j) {
            std::swap(left[index(c * n + j)], left[index(pivot * n + j)]);
            std::swap(right[index(c * n + j)], right[index(pivot * n + j)]);
        }
        for (std::int64_t i = 0; i < n; ++i) {
            if (i == c) continue;
            const double factor = left[index(i * n + c)] / left[index(c * n + c)];
            for (std::int64_t j = c; j < n; ++j) left[index(i * n + j)] -= factor * left[index(c * n + j)];
            for (std::int64_t j = 0; j < n; ++j) right[index(i * n + j)] -= factor * right[index(c * n + j)];
        }
    }
    std::vector<double> x(index(n * n));
    for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < n; ++j) x[index(j * n + i)] = right[index(i * n + j)] / left[index(i * n + i)];
    return x;
}

/// I + 2Q + 2Q^2 + ... + 2Q^(terms - 2) + Q^(terms - 1), as PEFT sums it: two terms are I + 2Q, three are those of
/// four.
std::vector<double> cayley_neumann(const std::vector<double>& q, std::int64_t n, int terms) {
    std::vector<double> sum(index(n * n));
    std::vector<double> power(index(n * n));
    for (std::int64_t i = 0; i < n; ++i) sum[index(i * n + i)] = power[index(i * n + i)] = 1.0;
    std::vector<double> next(index(n * n));
    const int powers = terms == 2 ? 1 : std::max(terms, 4) - 1;
    for (int exponent = 1; exponent <= powers; ++exponent) {
        std::fill(next.begin(), next.end(), 0.0);
        for (std::int64_t i = 0; i < n; ++i)
            for (std::int64_t k = 0; k < n; ++k)
                for (std::int64_t j = 0; j < n; ++j)
                    next[index(i * n + j)] += power[index(i * n + k)] * q[index(k * n + j)];
        std::swap(power, next);
        const double factor = exponent < powers || terms == 2 ? 2.0 : 1.0;
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += factor * power[i];
    }
    return sum;
}

/// The permutation of BOFT's stage `stage` (arXiv 2311.06243 as PEFT builds it): within groups of `group` inputs the
/// half blocks of even number come first, then the odd ones.
std::vector<std::int64_t> butterfly(std::int64_t inputs, std::int64_t group, std::int64_t half) {
    std::vector<std::int64_t> order;
    for (std::int64_t begin = 0; begin < inputs; begin += group)
        for (const std::int64_t odd : {0, 1})
            for (std::int64_t block = odd; block < group / half; block += 2)
                for (std::int64_t i = 0; i < half; ++i) order.push_back(begin + block * half + i);
    return order;
}

/// row <- row R^T for blocks R [blocks, n, n] on the diagonal; one block serves all when there is only one.
void rotate_blocks(std::span<float> row, const std::vector<std::vector<double>>& blocks, std::int64_t n) {
    std::vector<double> turned(index(n));
    for (std::size_t begin = 0, block = 0; begin < row.size(); begin += index(n), ++block) {
        const std::vector<double>& r = blocks.size() == 1 ? blocks[0] : blocks[block];
        for (std::int64_t i = 0; i < n; ++i) {
            double sum = 0;
            for (std::int64_t j = 0; j < n; ++j)
                sum += r[index(i * n + j)] * static_cast<double>(row[begin + index(j)]);
            turned[index(i)] = sum;
        }
        for (std::int64_t i = 0; i < n; ++i) row[begin + index(i)] = static_cast<float>(turned[index(i)]);
    }
}

}  // namespace

/// LoKr: W += s kron(w1, w2), each factor whole or as a product of two.
Result<void> plan_lokr_site(SiteInput& input, const PlanContext& context) {
    const auto w1 = factor(input, "lokr_w1", "lokr_w1_a", "lokr_w1_b");
    if (!w1) return w1.error();
    const auto w2 = factor(input, "lokr_w2", "lokr_w2_a", "lokr_w2_b");
    if (!w2) return w2.error();
    const std::int64_t in = input.in();
    const std::int64_t out = input.out();
    if (w1->rows * w2->rows != out || w1->columns * w2->columns != in)
        return input.refuse(input.path() + ": its factors are " + shape_text(std::vector{w1->rows, w1->columns}) +
                            " and " + shape_text(std::vector{w2->rows, w2->columns}) +
                            ", this base wants a product of " + shape_text(std::vector{out, in}));
    const auto scale =
        input.scale(static_cast<std::int64_t>(context.config.rank_pattern.lookup(input.path(), context.config.rank)));
    if (!scale) return scale.error();
    PlannedPart part;
    part.made_bytes =
        static_cast<std::uint64_t>(in * out + w1->rows * w1->columns + w2->rows * w2->columns) * kFloatBytes;
    part.build = [=, w1 = *w1, w2 = *w2, scale = *scale, site = input.site()](TensorValues& values, const BaseValues*,
                                                                              Module& into) -> Result<void> {
        const std::vector<float> a = w1.read(values);
        const std::vector<float> b = w2.read(values);
        std::vector<float> delta;
        delta.reserve(index(in * out));
        for (std::int64_t i = 0; i < w1.rows; ++i)
            for (std::int64_t k = 0; k < w2.rows; ++k)
                for (std::int64_t j = 0; j < w1.columns; ++j)
                    for (std::int64_t l = 0; l < w2.columns; ++l)
                        delta.push_back(a[index(i * w1.columns + j)] * b[index(k * w2.columns + l)]);
        LowRankPair pair = dense_pair(site, in, std::move(delta));
        pair.scale = scale;
        into.pairs.push_back(std::move(pair));
        return {};
    };
    context.plan.parts.push_back(std::move(part));
    return {};
}

/// OFT (arXiv 2306.07280): y = W (R x), R of blocks on the diagonal, x_block R in row form. The file holds the upper
/// triangle of each block's skew Q.
Result<void> plan_oft_site(SiteInput& input, const PlanContext& context) {
    const auto r = input.need("oft_R.weight", {-1, -1});
    if (!r) return r.error();
    const std::int64_t blocks = (*r)->shape[0];
    const std::int64_t triangle = (*r)->shape[1];
    const auto n =
        static_cast<std::int64_t>(std::llround((1.0 + std::sqrt(1.0 + 8.0 * static_cast<double>(triangle))) / 2.0));
    const bool shared = context.config.block_share;
    if (n * (n - 1) / 2 != triangle || input.in() % n != 0 || blocks != (shared ? 1 : input.in() / n))
        return input.refuse(input.path() + ": oft_R is " + shape_text((*r)->shape) + ", which cuts no " +
                            std::to_string(input.in()) + " inputs into blocks");
    const bool neumann = context.config.cayley_neumann;
    const int terms = context.config.cayley_terms;
    plan_dense(input, context, [=, r = *r](TensorValues& values) -> RowChange {
        std::vector<std::vector<double>> turns;
        const float* upper = values[r].data();
        for (std::int64_t block = 0; block < blocks; ++block) {
            std::vector<double> q(index(n * n));
            for (std::int64_t i = 0; i < n; ++i)
                for (std::int64_t j = i + 1; j < n; ++j, ++upper) {
                    q[index(i * n + j)] = *upper;
                    q[index(j * n + i)] = -static_cast<double>(*upper);
                }
            turns.push_back(neumann ? cayley_neumann(q, n, terms) : cayley(q, n).value());
        }
        return [turns = std::move(turns), n](std::int64_t, std::span<float> row) { rotate_blocks(row, turns, n); };
    });
    return {};
}

/// BOFT (arXiv 2311.06243): W' = s * W B^T with B a product of permuted block rotations, one per butterfly stage.
Result<void> plan_boft_site(SiteInput& input, const PlanContext& context) {
    const auto r = input.need("boft_R", {-1, -1, -1, -1});
    if (!r) return r.error();
    const std::int64_t stages = (*r)->shape[0];
    const std::int64_t blocks = (*r)->shape[1];
    const std::int64_t n = (*r)->shape[2];
    const bool halves = stages == 1 || (n % 2 == 0 && stages < 32 && blocks % (std::int64_t{1} << (stages - 1)) == 0);
    if ((*r)->shape[3] != n || blocks * n != input.in() || !halves)
        return input.refuse(input.path() + ": boft_R is " + shape_text((*r)->shape) + ", which cuts no " +
                            std::to_string(input.in()) + " inputs into blocks");
    const auto s = input.need("boft_s", {input.out(), 1});
    if (!s) return s.error();
    plan_dense(input, context, [=, in = input.in(), r = *r, s = *s](TensorValues& values) -> RowChange {
        struct Stage {
            std::vector<std::vector<double>> turns;
            std::vector<std::int64_t> order;  // empty: as they are
        };
        std::vector<Stage> all(index(stages));
        const float* raw = values[r].data();
        for (std::int64_t stage = 0; stage < stages; ++stage) {
            if (stages > 1) all[index(stage)].order = butterfly(in, in / (blocks >> stage), n / 2);
            for (std::int64_t block = 0; block < blocks; ++block, raw += n * n) {
                std::vector<double> skew(index(n * n));
                for (std::int64_t i = 0; i < n; ++i)
                    for (std::int64_t j = 0; j < n; ++j)
                        skew[index(i * n + j)] = 0.5 * (static_cast<double>(raw[i * n + j]) - raw[j * n + i]);
                all[index(stage)].turns.push_back(cayley(skew, n).value());
            }
        }
        return [all = std::move(all), scales = std::move(values[s]), n](std::int64_t row, std::span<float> weight) {
            std::vector<float> sorted(weight.size());
            for (const Stage& stage : all) {
                if (stage.order.empty()) {
                    rotate_blocks(weight, stage.turns, n);
                    continue;
                }
                for (std::size_t i = 0; i < weight.size(); ++i) sorted[index(stage.order[i])] = weight[i];
                rotate_blocks(sorted, stage.turns, n);
                for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = sorted[index(stage.order[i])];
            }
            for (float& value : weight) value *= scales[index(row)];
        };
    });
    return {};
}

}  // namespace attune
