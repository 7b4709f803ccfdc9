#include "engine/weights/weight.hpp"

#include "engine/files/hash.hpp"
#include "engine/kernels/cpu_kernels.hpp"
#include "engine/weights/packing.hpp"
#include "engine/weights/zero_pages.hpp"

#include <cstring>
#include <numeric>

namespace attune {

namespace {

// Rows are staged in chunks of about this many float32 bytes; a chunk is always whole panels.
constexpr std::int64_t kStagingBytes = 256 << 10;

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

bool is_bf16(const Weight::Options& options) { return options.dtype == torch::kBFloat16; }

torch::Tensor bytes_of(const torch::Tensor& tensor) { return tensor.view(-1).view(torch::kUInt8); }

}  // namespace

Weight::Weight(std::vector<Part> parts, std::int64_t columns, const Options& options)
    : parts_(std::move(parts)),
      columns_(columns),
      options_(options),
      gates_(std::make_unique<Gate[]>(parts_.size())),
      expected_(parts_.size()),
      sources_(parts_.size()),
      copies_(parts_.size()) {
    TORCH_CHECK(options.shard.rank == 0 && options.shard.world == 1, "weights are not sharded yet");
    TORCH_CHECK(options.layout == WeightLayout::rows || options.device.is_cpu(), "panels are for the CPU");
    const bool panels = options.layout == WeightLayout::panels;
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
        Part& part = parts_[i];
        TORCH_CHECK(part.quant == Quant::none || panels || options.device.is_meta(), "quantised weights lie in panels");
        TORCH_CHECK(part.quant == Quant::none || columns % kQuantGroup == 0, part.name, ": no whole groups");
        part.first_output = outputs_;
        outputs_ += stored_rows(i);
        begins_.push_back(bytes);
        bytes += part_bytes(i);
    }
    // Zeros: the padding takes part in the products and is hashed.
    storage_ = panels ? zero_pages({static_cast<std::int64_t>(bytes)}, torch::kUInt8, options.device, PageSize::huge)
                      : zero_pages({outputs_, columns_}, options.dtype, options.device, PageSize::huge);
    if (!panels && options.dtype == torch::kFloat32 && outputs_ == 1) vector_ = storage_.select(0, 0);
}

std::uint64_t Weight::row_bytes(std::size_t part) const {
    if (parts_[part].quant != Quant::none) return packed_row_bytes(parts_[part].quant, columns_);
    return static_cast<std::uint64_t>(columns_) * torch::elementSize(options_.dtype);
}

bool Weight::is_quantised() const {
    return std::any_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.quant != Quant::none; });
}

bool Weight::holds_full_part() const {
    return std::any_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.quant == Quant::none; });
}

std::uint64_t Weight::bytes() const { return storage_.nbytes(); }

std::int64_t Weight::stored_rows(std::size_t part) const {
    const std::int64_t rows = parts_[part].rows;
    return options_.layout == WeightLayout::panels ? round_up(rows, kPanelOutputs) : rows;
}

std::uint64_t Weight::part_bytes(std::size_t part) const {
    return static_cast<std::uint64_t>(stored_rows(part)) * row_bytes(part);
}

// ---- the mathematics' side

torch::Tensor Weight::matmul(const torch::Tensor& x, torch::Tensor out, const ReadAhead* ahead) const {
    if (options_.layout == WeightLayout::panels) return matmul_panels(x, std::move(out), nullptr, ahead);
    if (!is_bf16(options_)) return torch::linear(x, storage_);
    return torch::linear(x.to(torch::kBFloat16), storage_).to(torch::kFloat32);
}

torch::Tensor Weight::matmul(const torch::Tensor& x, torch::Tensor out, const Finish& finish) const {
    TORCH_CHECK(options_.layout == WeightLayout::panels, "only packed weights finish their outputs piece by piece");
    for (const Part& part : parts_) TORCH_CHECK(part.rows == parts_.front().rows, "parts of unequal rows");
    return matmul_panels(x, std::move(out), &finish, nullptr);
}

torch::Tensor Weight::gather(const torch::Tensor& ids) const {
    TORCH_CHECK(parts_.size() == 1, "gather needs a weight of one tensor");
    if (options_.layout == WeightLayout::rows) return storage_.index_select(0, ids).to(torch::kFloat32);
    const torch::Tensor list = ids.to(torch::kCPU, torch::kInt32).contiguous();
    torch::Tensor out = torch::empty({list.size(0), columns_}, torch::kFloat32);
    gather({list.const_data_ptr<std::int32_t>(), static_cast<std::size_t>(list.size(0))},
           out.mutable_data_ptr<float>());
    return out;
}

void Weight::gather(std::span<const std::int32_t> ids, float* into) const {
    TORCH_CHECK(parts_.size() == 1 && options_.device.is_cpu(), "gather needs a weight of one tensor on the CPU");
    for (const std::int32_t id : ids) {
        TORCH_CHECK(id >= 0 && id < parts_[0].rows, "token id ", id, " is outside of the vocabulary");
        read_resident_row(0, id, into);
        into += columns_;
    }
}

torch::Tensor Weight::read_rows(std::size_t part, std::int64_t first, std::int64_t count) const {
    TORCH_CHECK(first >= 0 && count >= 0 && first + count <= parts_[part].rows, "rows outside of ", parts_[part].name);
    if (options_.layout == WeightLayout::rows)
        return storage_.narrow(0, parts_[part].first_output + first, count)
            .to(torch::kFloat32, /*non_blocking=*/false, /*copy=*/true);
    torch::Tensor out = torch::empty({count, columns_}, torch::kFloat32);
    float* to = out.mutable_data_ptr<float>();
    for (std::int64_t i = 0; i < count; ++i) read_resident_row(part, first + i, to + i * columns_);
    return out;
}

const torch::Tensor& Weight::vector() const {
    TORCH_CHECK(vector_.defined(), "not a float32 vector");
    return vector_;
}

// ---- changing and restoring

void Weight::overwrite_rows(std::size_t part, std::int64_t first, const torch::Tensor& values) {
    const std::int64_t count = values.size(0);
    TORCH_CHECK(first >= 0 && first + count <= parts_[part].rows && values.size(1) == columns_, "rows outside of ",
                parts_[part].name);
    TORCH_CHECK(parts_[part].quant == Quant::none, parts_[part].name, " is quantised, it is never changed in place");
    const std::lock_guard lock(gates_[part].mutex);
    ++gates_[part].epoch;
    write_rows(part, first, values);
}

void Weight::write_rows(std::size_t part, std::int64_t first, const torch::Tensor& values) {
    const std::int64_t count = values.size(0);
    const torch::NoGradGuard no_grad;
    if (options_.layout == WeightLayout::rows) {
        storage_.narrow(0, parts_[part].first_output + first, count).copy_(values);
        return;
    }
    const torch::Tensor from = values.to(torch::kCPU, torch::kFloat32).contiguous();
    const float* row = from.const_data_ptr<float>();
    std::byte* panels = static_cast<std::byte*>(storage_.mutable_data_ptr()) + part_begin(part);
    for (std::int64_t i = 0; i < count; ++i) {
        if (is_bf16(options_)) {
            repack_row(row + i * columns_, first + i, columns_, reinterpret_cast<Bf16*>(panels));
        } else {
            repack_row(row + i * columns_, first + i, columns_, reinterpret_cast<float*>(panels));
        }
    }
}

std::int64_t Weight::source_step(const SourceTensor& source) const {
    return source.paired_rows > 0 ? std::lcm<std::int64_t>(kPanelOutputs, source.paired_rows) : kPanelOutputs;
}

std::int64_t Weight::chunk_rows(const SourceTensor& source) const {
    const std::int64_t step = source_step(source);
    const std::int64_t rows =
        kStagingBytes / static_cast<std::int64_t>(sizeof(float)) / std::max<std::int64_t>(columns_, 1);
    return std::max<std::int64_t>(rows / step, 1) * step;
}

Result<void> Weight::read_raw(std::size_t part, const SourceTensor& source, std::int64_t first, std::int64_t count,
                              std::vector<std::byte>& raw) const {
    const std::uint64_t file_row = source.stored.bytes / static_cast<std::uint64_t>(parts_[part].rows);
    raw.resize(static_cast<std::size_t>(count) * file_row);
    return source.file->read(source.stored.begin + static_cast<std::uint64_t>(first) * file_row, raw);
}

Result<void> Weight::read_chunk(std::size_t part, const SourceTensor& source, std::int64_t first, std::int64_t count,
                                Staging& staging) const {
    auto& [raw, values, codes, encoded] = staging;
    const StoredTensor& stored = source.stored;
    if (auto ok = read_raw(part, source, first, count, raw); !ok) return ok;
    const std::uint64_t file_row = raw.size() / static_cast<std::uint64_t>(count);
    const Quant quant = parts_[part].quant;
    codes.quant = quant;
    codes.columns = columns_;
    const Error not_finite = make_error(Errc::invalid_argument, "tensor \"" + stored.name +
                                                                    "\" holds a value that is not finite, or too large "
                                                                    "for a quantised weight");
    if (quant != Quant::none && quant == quant_of(stored.type)) {
        std::vector<std::byte> ordered;
        if (source.paired_rows > 0) {
            ordered.resize(raw.size());
            unpair_rows(raw.data(), count, source.paired_rows, static_cast<std::int64_t>(file_row), ordered.data());
        }
        if (!take_blocks(stored.type, source.paired_rows > 0 ? ordered : raw, codes)) return not_finite;
        return {};
    }
    values.resize(static_cast<std::size_t>(count * columns_));
    if (!convert_to_f32(stored.type, raw.data(), values.data(), values.size()))
        return make_error(Errc::unsupported,
                          "tensor \"" + stored.name + "\": type " + stored.type_name + " is not supported");
    if (source.paired_rows > 0) {
        std::vector<float> ordered(values.size());
        const bool is_vector = stored.shape.size() == 1;
        unpair_rows(values.data(), is_vector ? columns_ : count, source.paired_rows, is_vector ? 1 : columns_,
                    ordered.data());
        values.swap(ordered);
    }
    if (quant != Quant::none && !quantise(values, codes)) return not_finite;
    return {};
}

Result<void> Weight::read_source_rows(std::size_t part, std::int64_t first, std::int64_t count,
                                      std::span<float> into) const {
    const SourceTensor& source = sources_[part];
    const std::int64_t rows = parts_[part].rows;
    if (source.file == nullptr || first < 0 || count < 0 || first > rows - count ||
        into.size() != static_cast<std::size_t>(count * columns_))
        return make_error(Errc::internal, "tensor \"" + parts_[part].name + "\" has no such rows to read again");
    const bool quantised = parts_[part].quant != Quant::none;
    const std::int64_t chunk = chunk_rows(source);
    const std::int64_t step = source_step(source);
    Staging staging;
    auto& values = staging.values;
    for (std::int64_t next = first; next < first + count;) {
        const std::int64_t begin = next / step * step;
        const std::int64_t wanted = (first + count - begin + step - 1) / step * step;
        const std::int64_t read = std::min({chunk, wanted, rows - begin});
        if (auto ok = read_chunk(part, source, begin, read, staging); !ok) return ok;
        values.resize(static_cast<std::size_t>(read * columns_));
        if (quantised) dequantise(staging.codes, values);
        const std::int64_t end = std::min(begin + read, first + count);
        std::copy(values.begin() + (next - begin) * columns_, values.begin() + (end - begin) * columns_,
                  into.begin() + (next - first) * columns_);
        next = end;
    }
    if (is_bf16(options_) && !quantised) round_to_bf16(into);
    return {};
}

std::size_t Weight::chunk_bytes(std::size_t part, const SourceTensor& source, std::int64_t first) const {
    const std::int64_t count = std::min(chunk_rows(source), parts_[part].rows - first);
    const bool panels = options_.layout == WeightLayout::panels;
    return static_cast<std::size_t>(panels ? round_up(count, kPanelOutputs) : count) * row_bytes(part);
}

Result<void> Weight::convert_chunk(std::size_t part, const SourceTensor& source, std::int64_t first, Staging& staging,
                                   std::byte* into) const {
    auto& [raw, values, codes, encoded] = staging;
    const std::int64_t count = std::min(chunk_rows(source), parts_[part].rows - first);
    const bool panels = options_.layout == WeightLayout::panels;
    // What most checkpoints hold and most servers keep: not worth a way through float32.
    if (panels && is_bf16(options_) && parts_[part].quant == Quant::none && source.stored.type == StoredType::bf16 &&
        source.paired_rows == 0) {
        if (auto ok = read_raw(part, source, first, count, raw); !ok) return ok;
        pack_bf16_panels(raw, count, columns_, reinterpret_cast<Bf16*>(into));
        return {};
    }
    if (auto ok = read_chunk(part, source, first, count, staging); !ok) return ok;
    if (parts_[part].quant != Quant::none) {
        pack_panels(codes, into);
    } else if (panels && is_bf16(options_)) {
        pack_panels(values.data(), count, columns_, reinterpret_cast<Bf16*>(into));
    } else if (panels) {
        pack_panels(values.data(), count, columns_, reinterpret_cast<float*>(into));
    } else if (is_bf16(options_)) {
        auto* to = reinterpret_cast<Bf16*>(into);
        for (std::size_t i = 0; i < values.size(); ++i) to[i] = to_bf16(values[i]);
    } else {
        std::memcpy(into, values.data(), values.size() * sizeof(float));
    }
    return {};
}

template <class Take>
Result<void> Weight::convert_source(std::size_t part, const SourceTensor& source, Take&& take) const {
    Staging staging;
    for (std::int64_t first = 0; first < parts_[part].rows; first += chunk_rows(source)) {
        staging.encoded.resize(chunk_bytes(part, source, first));
        if (auto ok = convert_chunk(part, source, first, staging, staging.encoded.data()); !ok) return ok;
        take(std::span<const std::byte>(staging.raw), static_cast<std::uint64_t>(first) * row_bytes(part),
             std::span<const std::byte>(staging.encoded));
    }
    return {};
}

Result<void> Weight::load(std::size_t part, SourceTensor source, Sha256* checkpoint) {
    auto ok = convert_source(part, source, [&](auto raw, std::uint64_t offset, auto bytes) {
        if (checkpoint != nullptr) checkpoint->update(raw);
        const std::lock_guard lock(gates_[part].mutex);
        write_bytes(part, offset, bytes);
    });
    if (!ok) return ok;
    sources_[part] = std::move(source);
    const std::lock_guard lock(gates_[part].mutex);
    expected_[part] = gates_[part].meant = hash_held(part);
    return {};
}

Result<void> Weight::reload(std::size_t part) {
    const std::lock_guard lock(gates_[part].mutex);
    const Error damaged =
        make_error(Errc::base_damaged, "tensor \"" + parts_[part].name + "\": the model file has changed");
    Xxh128 before;
    auto ok = convert_source(part, sources_[part], [&](auto, std::uint64_t, auto bytes) { before.update(bytes); });
    if (!ok) return ok;
    if (before.hex() != expected_[part]) return damaged;
    // Read a second time instead of holding a copy: staging stays bounded. What is written is hashed again below.
    ++gates_[part].epoch;
    gates_[part].meant = expected_[part];
    ok = convert_source(part, sources_[part],
                        [&](auto, std::uint64_t offset, auto bytes) { write_bytes(part, offset, bytes); });
    if (!ok) return ok;
    if (hash_held(part) != expected_[part]) return damaged;
    return {};
}

void Weight::write_bytes(std::size_t part, std::uint64_t offset, std::span<const std::byte> bytes) {
    const std::uint64_t at = part_begin(part) + offset;
    const torch::NoGradGuard no_grad;
    if (options_.device.is_cpu()) {
        std::memcpy(static_cast<std::byte*>(storage_.mutable_data_ptr()) + at, bytes.data(), bytes.size());
        return;
    }
    const auto count = static_cast<std::int64_t>(bytes.size());
    bytes_of(storage_)
        .narrow(0, static_cast<std::int64_t>(at), count)
        .copy_(torch::from_blob(const_cast<std::byte*>(bytes.data()), {count}, torch::kUInt8));
}

// ---- the audit's side

std::uint64_t Weight::epoch(std::size_t part) const {
    const std::lock_guard lock(gates_[part].mutex);
    return gates_[part].epoch;
}

Weight::Meant Weight::meant(std::size_t part) const {
    const std::lock_guard lock(gates_[part].mutex);
    return {gates_[part].epoch, gates_[part].meant};
}

torch::Tensor Weight::byte_view(std::size_t part) const {
    return bytes_of(storage_).narrow(0, static_cast<std::int64_t>(part_begin(part)),
                                     static_cast<std::int64_t>(part_bytes(part)));
}

std::span<const std::byte> Weight::resident_bytes(std::size_t part, std::uint64_t offset, std::uint64_t count,
                                                  std::vector<std::byte>& staging) const {
    const std::uint64_t at = part_begin(part) + offset;
    if (options_.device.is_cpu()) return {static_cast<const std::byte*>(storage_.const_data_ptr()) + at, count};
    const torch::NoGradGuard no_grad;
    staging.resize(count);
    torch::from_blob(staging.data(), {static_cast<std::int64_t>(count)}, torch::kUInt8)
        .copy_(bytes_of(storage_).narrow(0, static_cast<std::int64_t>(at), static_cast<std::int64_t>(count)));
    return staging;
}

std::string Weight::hash(std::size_t part) const {
    for (;;) {
        Xxh128 hash;
        if (visit_bytes(part, 0, part_bytes(part), epoch(part), [&](auto bytes) { hash.update(bytes); }))
            return hash.hex();
    }
}

std::string Weight::hash_held(std::size_t part) const {
    Xxh128 hash;
    std::vector<std::byte> staging;
    const std::uint64_t total = part_bytes(part);
    for (std::uint64_t offset = 0; offset < total; offset += kSliceBytes)
        hash.update(resident_bytes(part, offset, std::min(total - offset, kSliceBytes), staging));
    return hash.hex();
}

void Weight::flip_bit(std::size_t part, std::uint64_t byte) {
    const std::lock_guard lock(gates_[part].mutex);
    std::vector<std::byte> staging;
    const std::byte flipped = resident_bytes(part, byte, 1, staging)[0] ^ std::byte{1};
    write_bytes(part, byte, {&flipped, 1});
}

}  // namespace attune
