// Changing a weight in place and bringing it back: the parts of Weight that merging and repairing use.

#include "engine/kernels/cpu_kernels.hpp"
#include "engine/kernels/worker_pool.hpp"
#include "engine/weights/weight.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>

namespace attune {
namespace {

// Rows are staged in chunks of about this many float32 bytes.
constexpr std::int64_t kStagingBytes = 1 << 20;

/// Columns [0, rank) of rows of b as [rank][kPanelOutputs], times `scale`; missing rows are zeros.
void turn_rows(std::span<const float> b, std::int64_t rank, std::int64_t first, std::int64_t count, float scale,
               float* panel) {
    std::fill_n(panel, rank * kPanelOutputs, 0.0F);
    for (std::int64_t n = 0; n < count; ++n) {
        const float* row = b.data() + (first + n) * rank;
        for (std::int64_t k = 0; k < rank; ++k) panel[k * kPanelOutputs + n] = row[k] * scale;
    }
}

/// [rows, columns] over values that are only read.
torch::Tensor matrix(std::span<const float> values, std::int64_t rows, std::int64_t columns, torch::Device device) {
    // from_blob wants a pointer to non-const.
    return torch::from_blob(const_cast<float*>(values.data()), {rows, columns}).to(device);
}

}  // namespace

Result<void> Weight::change(std::size_t part, bool keep_copy, const WeightChange& change) {
    if (parts_[part].quant != Quant::none)
        return make_error(Errc::unsupported, "tensor \"" + parts_[part].name +
                                                 "\" is quantised: modules act on it row by row, it is never changed");
    Gate& gate = gates_[part];
    const std::lock_guard lock(gate.mutex);
    if (hash_held(part) != expected_[part])
        return make_error(Errc::base_damaged, "tensor \"" + parts_[part].name + "\" is not as it was loaded");
    const torch::NoGradGuard no_grad;
    std::string fault = " could not be changed";
    try {
        if (keep_copy && !copies_[part].defined()) copies_[part] = byte_view(part).clone();
        ++gate.epoch;
        const bool panels = options_.layout == WeightLayout::panels;
        if (panels ? change_panels(part, change) : change_rows(part, change)) {
            gate.meant = hash_held(part);
            return {};
        }
        fault = " would hold a value that is not finite";
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): `fault` says it
    }
    if (auto restored = restore_held(part); !restored) return restored;
    return make_error(Errc::invalid_module, "tensor \"" + parts_[part].name + "\"" + fault);
}

bool Weight::change_panels(std::size_t part, const WeightChange& change) {
    const std::int64_t rows = parts_[part].rows;
    const std::int64_t panels = stored_rows(part) / kPanelOutputs;
    const bool bf16 = options_.dtype == torch::kBFloat16;
    const auto run = bf16 ? cpu_kernels().change_bf16 : cpu_kernels().change_f32;
    std::byte* begin = static_cast<std::byte*>(storage_.mutable_data_ptr()) + part_begin(part);
    std::atomic<bool> finite{true};
    parallel_for(panels, 1, [&](std::int64_t from, std::int64_t to) {
        std::vector<float> b(static_cast<std::size_t>(change.rank) * kPanelOutputs);
        std::vector<std::vector<float>> turned(change.shards.size());
        std::vector<ChangeCall::Shards> shards(change.shards.size());
        float row_gain[kPanelOutputs] = {};
        ChangeCall call;
        call.columns = static_cast<int>(columns_);
        call.rank = change.rank;
        call.a = change.a.data();
        call.b = b.data();
        call.row_gain = change.row_gain.empty() ? nullptr : row_gain;
        call.column_gain = change.column_gain.empty() ? nullptr : change.column_gain.data();
        call.shards = shards.data();
        call.shard_count = static_cast<int>(shards.size());
        for (std::int64_t panel = from; panel < to; ++panel) {
            const std::int64_t first = panel * kPanelOutputs;
            const std::int64_t count = std::min<std::int64_t>(rows - first, kPanelOutputs);
            turn_rows(change.b, change.rank, first, count, 1.0F, b.data());
            for (std::size_t i = 0; i < shards.size(); ++i) {
                const WeightChange::Shards& one = change.shards[i];
                turned[i].resize(static_cast<std::size_t>(one.rank) * kPanelOutputs);
                turn_rows(one.b, one.rank, first, count, one.scale, turned[i].data());
                shards[i] = {turned[i].data(), one.rank};
            }
            if (call.row_gain != nullptr) {
                std::fill_n(row_gain, kPanelOutputs, 0.0F);
                std::copy_n(change.row_gain.begin() + first, count, row_gain);
            }
            call.panel = begin + static_cast<std::uint64_t>(first) * row_bytes(part);
            if (!run(call)) finite = false;
        }
    });
    return finite;
}

bool Weight::change_rows(std::size_t part, const WeightChange& change) {
    const std::int64_t rows = parts_[part].rows;
    const torch::Device device = options_.device;
    const torch::Tensor a = matrix(change.a, change.rank, columns_, device);
    const torch::Tensor b = matrix(change.b, change.rank > 0 ? rows : 0, change.rank, device);
    std::vector<torch::Tensor> shards;
    for (const WeightChange::Shards& one : change.shards) shards.push_back(matrix(one.b, rows, one.rank, device));
    const std::int64_t wanted = kStagingBytes / static_cast<std::int64_t>(sizeof(float)) / columns_;
    const std::int64_t chunk = std::max<std::int64_t>(wanted, 1);
    for (std::int64_t first = 0; first < rows; first += chunk) {
        torch::Tensor values = read_rows(part, first, std::min(chunk, rows - first));
        const std::int64_t count = values.size(0);
        torch::Tensor gain = torch::zeros({1, 1}, device);
        if (!change.row_gain.empty()) gain = gain + matrix(change.row_gain, rows, 1, device).narrow(0, first, count);
        if (!change.column_gain.empty()) gain = gain + matrix(change.column_gain, 1, columns_, device);
        if (gain.numel() > 1) values.addcmul_(values.clone(), gain);
        if (change.rank > 0) values.addmm_(b.narrow(0, first, count), a);
        for (std::size_t i = 0; i < shards.size(); ++i) {
            const std::int64_t rank = shards[i].size(1);
            const torch::Tensor wide =
                shards[i].narrow(0, first, count).repeat({1, (columns_ + rank - 1) / rank}).narrow(1, 0, columns_);
            values.add_(wide, change.shards[i].scale);
        }
        // What is stored counts: a large float32 may be no bfloat16.
        if (!torch::isfinite(values.to(options_.dtype)).all().item<bool>()) return false;
        write_rows(part, first, values);
    }
    return true;
}

Result<void> Weight::restore(std::size_t part) {
    const std::lock_guard lock(gates_[part].mutex);
    return restore_held(part);
}

Result<void> Weight::restore_held(std::size_t part) {
    torch::Tensor& copy = copies_[part];
    const torch::NoGradGuard no_grad;
    ++gates_[part].epoch;
    gates_[part].meant = expected_[part];
    if (copy.defined()) {
        byte_view(part).copy_(copy);
        if (hash_held(part) == expected_[part]) return {};
        copy = torch::Tensor();  // it is damaged itself: the file decides
    }
    if (auto ok = read_source(part); !ok) return ok;
    if (hash_held(part) == expected_[part]) return {};
    return make_error(Errc::base_damaged, "tensor \"" + parts_[part].name + "\": the model file has changed");
}

Result<void> Weight::read_source(std::size_t part) {
    const SourceTensor& source = sources_[part];
    const std::int64_t chunk = chunk_rows(source);
    const std::int64_t chunks = (parts_[part].rows + chunk - 1) / chunk;
    const bool in_place = options_.device.is_cpu();
    std::mutex failing;
    Result<void> all;
    parallel_for(chunks, 1, [&](std::int64_t begin, std::int64_t end) {
        // Kept from one tensor to the next: fresh memory would cost more than the copy that goes through it.
        static thread_local Staging staging;
        for (std::int64_t i = begin; i < end; ++i) {
            // On the CPU straight into place: a copy less of all that is restored.
            const std::uint64_t offset = static_cast<std::uint64_t>(i * chunk) * row_bytes(part);
            std::byte* into = nullptr;
            if (in_place) {
                into = static_cast<std::byte*>(storage_.mutable_data_ptr()) + part_begin(part) + offset;
            } else {
                staging.encoded.resize(chunk_bytes(part, source, i * chunk));
                into = staging.encoded.data();
            }
            if (auto ok = convert_chunk(part, source, i * chunk, staging, into); !ok) {
                const std::lock_guard lock(failing);
                all = ok;
                return;
            }
            if (!in_place) write_bytes(part, offset, staging.encoded);
        }
    });
    return all;
}

}  // namespace attune
