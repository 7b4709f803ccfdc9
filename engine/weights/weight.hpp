#pragma once

#include "attune/result.hpp"
#include "engine/weights/quantise.hpp"
#include "engine/weights/tensor_files.hpp"

#include <torch/torch.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace attune {

class ReadAhead;
class Sha256;

/// How a weight lies in memory.
enum class WeightLayout : std::uint8_t {
    rows,    ///< [rows, columns], what libtorch multiplies; the only one on CUDA and under gradients
    panels,  ///< packed for engine/kernels, 32 rows by 32 (see cpu_kernels.hpp and quant_kernels.hpp), each tensor
             ///< padded to whole panels with zeros
};

/// Which part of a weight this process holds. Only {0, 1} today; everything that names rows goes through it.
struct Shard {
    int rank = 0;
    int world = 1;
};

/// What is done to a part of a weight: W (1 + row gain + column gain) + b a + shards, in float32, rounded once into the
/// weight's dtype.
struct WeightChange {
    /// Column j gains scale * column j mod rank of b; with as many as the weight has columns a dense change.
    struct Shards {
        std::span<const float> b;  // [rows, rank]
        int rank = 0;
        float scale = 1.0F;
    };
    int rank = 0;
    std::vector<float> a;  // [rank, columns]
    std::vector<float> b;  // [rows, rank]
    std::vector<Shards> shards;
    std::vector<float> row_gain;     // [rows] or empty
    std::vector<float> column_gain;  // [columns] or empty
};

/// A resident matrix or vector of the base. Hides dtype, packing and shard: model, merge, audit and training use only
/// these calls. May hold several source tensors one below the other (q, k, v), multiplied in one go and audited each by
/// itself. Its bytes stay at one address for life.
///
/// Threads: the executor multiplies, gathers and overwrites; the auditor hashes. Writes and hashing meet at each
/// tensor's gate; reads of the executor need none, as nobody else writes.
class Weight {
public:
    /// One source tensor within the weight.
    struct Part {
        std::string name;
        std::int64_t rows = 0;
        std::int64_t first_output = 0;  ///< column of matmul()'s result where its outputs begin
        /// Panels only (or without memory, on the meta device): columns are whole groups, never changed in place.
        Quant quant = Quant::none;
    };
    struct Options {
        WeightLayout layout = WeightLayout::rows;
        torch::Dtype dtype = torch::kFloat32;  ///< float32 or bfloat16, of parts that are not quantised
        torch::Device device = torch::kCPU;
        Shard shard{};
        bool bf16_activations = false;  ///< products of bfloat16 panels round their input, see bf16_dot_kernels()
    };

    /// `parts` give name, rows and quant in order; `first_output` is filled in. A vector is one row.
    Weight(std::vector<Part> parts, std::int64_t columns, const Options& options);

    std::size_t parts() const { return parts_.size(); }
    const Part& part(std::size_t index) const { return parts_[index]; }
    std::int64_t columns() const { return columns_; }
    std::int64_t outputs() const { return outputs_; }  ///< width of matmul()'s result, padding included
    std::uint64_t bytes() const;                       ///< resident, all parts
    bool is_quantised() const;                         ///< any part
    Shard shard() const { return options_.shard; }
    torch::Device device() const { return options_.device; }

    // ---- the mathematics' side

    /// x: [n, columns] float32 -> [n, outputs()] float32. Differentiable in x with layout `rows`. `out`: where packed
    /// weights write the result, contiguous; without, and with layout `rows`, it is a new tensor. `ahead`: what is read
    /// next; a product of many rows over packed weights asks for it meanwhile.
    torch::Tensor matmul(const torch::Tensor& x, torch::Tensor out = {}, const ReadAhead* ahead = nullptr) const;
    /// The same over packed parts of equal rows, which then calls finish(first, last) once columns [first, last) of
    /// each part's outputs are made, on the thread that made them: what is done to them finds them in its cache.
    using Finish = std::function<void(std::int64_t first, std::int64_t last)>;
    torch::Tensor matmul(const torch::Tensor& x, torch::Tensor out, const Finish& finish) const;
    /// ids: [n] int64 on the weight's device -> [n, columns] float32. For weights of one part.
    torch::Tensor gather(const torch::Tensor& ids) const;
    /// The same on the CPU, without a tensor: `into` is [ids, columns].
    void gather(std::span<const std::int32_t> ids, float* into) const;
    /// -> [count, columns] float32 on the weight's device; a copy.
    torch::Tensor read_rows(std::size_t part, std::int64_t first, std::int64_t count) const;
    /// A float32 vector weight as it lies in memory: [columns].
    const torch::Tensor& vector() const;

    // ---- changing and restoring

    /// values: [count, columns] float32; rounded to the weight's dtype. Moves the part's epoch. Not of quantised parts.
    void overwrite_rows(std::size_t part, std::int64_t first, const torch::Tensor& values);

    /// Fills a part from its file, in bounded staging, and takes its expected hash. `checkpoint`, when given, is fed
    /// the raw bytes as they pass. Shape and type were checked by the caller.
    Result<void> load(std::size_t part, SourceTensor source, Sha256* checkpoint);

    /// Remembers where a part's values lie without reading them.
    void set_source(std::size_t part, SourceTensor source) { sources_[part] = std::move(source); }

    /// Rows [first, first + count) as they were loaded, read again from the part's file and rounded to the weight's
    /// dtype (of a quantised part, what its codes stand for): never what is resident. `into`: [count, columns]. Any
    /// thread.
    Result<void> read_source_rows(std::size_t part, std::int64_t first, std::int64_t count,
                                  std::span<float> into) const;

    /// Reads the part's file again and compares it with the expected hash before a resident byte changes, then writes
    /// it. Errc::base_damaged when the file no longer gives that hash.
    Result<void> reload(std::size_t part);

    /// Changes a whole part, in one go for the audit: hashed before (Errc::base_damaged when it is not what was loaded;
    /// then nothing is written) and after, so that it knows what to expect. With `keep_copy` restore() needs no file.
    /// All or nothing: where a value is not finite the part is restored, Errc::invalid_module. A quantised part is
    /// never changed: Errc::unsupported.
    Result<void> change(std::size_t part, bool keep_copy, const WeightChange& change);
    /// The part as it was loaded, from the kept copy or else from its file, in bounded staging per thread; verified
    /// when it is written, so before anybody uses it: what it held before was of no use any more. Errors as reload().
    Result<void> restore(std::size_t part);

    // ---- the audit's side

    std::uint64_t part_bytes(std::size_t part) const;
    /// The hash taken right after the load.
    const std::string& expected(std::size_t part) const { return expected_[part]; }
    std::uint64_t epoch(std::size_t part) const;
    /// The hash that the part is meant to have while its epoch is this one: that of its load, or of its last change().
    struct Meant {
        std::uint64_t epoch = 0;
        std::string hash;
    };
    Meant meant(std::size_t part) const;
    /// XXH3-128 of the part's resident bytes.
    std::string hash(std::size_t part) const;

    /// Calls `take(span of bytes)` for slices of [offset, offset + count), at most kSliceBytes each and each under the
    /// gate. Stops and returns false once the epoch is not `epoch` any more.
    template <class Take>
    bool visit_bytes(std::size_t part, std::uint64_t offset, std::uint64_t count, std::uint64_t epoch,
                     Take&& take) const {
        std::vector<std::byte> staging;
        while (count > 0) {
            const std::uint64_t slice = std::min(count, kSliceBytes);
            const std::lock_guard lock(gates_[part].mutex);
            if (gates_[part].epoch != epoch) return false;
            take(resident_bytes(part, offset, slice, staging));
            offset += slice;
            count -= slice;
        }
        return true;
    }

    /// Flips one bit and tells nobody: what a test of the audit needs.
    void flip_bit(std::size_t part, std::uint64_t byte);

    /// Where the bytes lie, for a test that they stay there.
    const void* address() const { return storage_.const_data_ptr(); }

    static constexpr std::uint64_t kSliceBytes = 1u << 20;

private:
    struct Gate {
        mutable std::mutex mutex;
        std::uint64_t epoch = 0;
        std::string meant;  // the hash that the resident bytes should have
    };

    std::int64_t stored_rows(std::size_t part) const;
    std::uint64_t row_bytes(std::size_t part) const;
    std::uint64_t part_begin(std::size_t part) const { return begins_[part]; }  ///< its first byte within the storage
    void read_resident_row(std::size_t part, std::int64_t row, float* into) const;  // on the CPU
    std::span<const std::byte> resident_bytes(std::size_t part, std::uint64_t offset, std::uint64_t count,
                                              std::vector<std::byte>& staging) const;
    void write_bytes(std::size_t part, std::uint64_t offset, std::span<const std::byte> bytes);

    // The part's gate is held by the caller.
    std::string hash_held(std::size_t part) const;
    void write_rows(std::size_t part, std::int64_t first, const torch::Tensor& values);
    /// False when a value is not finite as it is stored. Panels on all threads, without staging; rows in chunks.
    bool change_panels(std::size_t part, const WeightChange& change);
    bool change_rows(std::size_t part, const WeightChange& change);
    Result<void> restore_held(std::size_t part);
    /// Writes what the part's file gives now, on all threads.
    Result<void> read_source(std::size_t part);
    /// The part's resident bytes, [part_bytes] uint8.
    torch::Tensor byte_view(std::size_t part) const;
    struct PanelProduct;
    torch::Tensor matmul_panels(const torch::Tensor& x, torch::Tensor out, const Finish* finish,
                                const ReadAhead* ahead) const;
    bool holds_full_part() const;  // any that is not quantised

    /// How many rows can be read from a file apart from the others: whole panels, and whole heads where rows change
    /// places.
    std::int64_t source_step(const SourceTensor& source) const;
    struct Staging {
        std::vector<std::byte> raw;  // as in the file
        std::vector<float> values;
        QuantRows codes;                 // of a quantised part; the values may then be missing
        std::vector<std::byte> encoded;  // as in memory
    };
    /// Rows [first, first + count) as the file holds them.
    Result<void> read_raw(std::size_t part, const SourceTensor& source, std::int64_t first, std::int64_t count,
                          std::vector<std::byte>& raw) const;
    /// Reads rows [first, first + count) of a part's file: whole source_step()s, or up to its end.
    Result<void> read_chunk(std::size_t part, const SourceTensor& source, std::int64_t first, std::int64_t count,
                            Staging& staging) const;
    std::int64_t chunk_rows(const SourceTensor& source) const;

    /// The chunk_rows() rows from `first` on, or those up to the end, as they lie in memory: chunk_bytes() `into`.
    Result<void> convert_chunk(std::size_t part, const SourceTensor& source, std::int64_t first, Staging& staging,
                               std::byte* into) const;
    std::size_t chunk_bytes(std::size_t part, const SourceTensor& source, std::int64_t first) const;
    /// Calls take(raw file bytes, offset within the part's resident bytes, resident bytes) chunk by chunk.
    template <class Take>
    Result<void> convert_source(std::size_t part, const SourceTensor& source, Take&& take) const;

    std::vector<Part> parts_;
    std::int64_t columns_ = 0;
    std::int64_t outputs_ = 0;
    Options options_;
    torch::Tensor storage_;              // rows: [outputs, columns]; panels: bytes, part after part
    std::vector<std::uint64_t> begins_;  // of each part within the storage
    torch::Tensor vector_;               // [columns] of the storage where that is a float32 vector
    std::unique_ptr<Gate[]> gates_;
    std::vector<std::string> expected_;
    std::vector<SourceTensor> sources_;
    std::vector<torch::Tensor> copies_;  // [part_bytes] uint8; undefined until change() keeps one
};

}  // namespace attune
