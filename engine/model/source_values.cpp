#include "engine/model/source_values.hpp"

#include "engine/weights/packing.hpp"

#include <utility>

namespace attune {
namespace {

class SourceValues final : public BaseValues {
public:
    SourceValues(std::map<std::string, WeightPlace> places, bool bf16, Quant quant) : bf16_(bf16), quant_(quant) {
        for (auto& [name, place] : places) places_.emplace(name, std::move(place));
    }

    Result<void> read_rows(std::string_view tensor, std::int64_t first, std::int64_t count,
                           std::span<float> into) const override {
        const auto found = places_.find(tensor);
        if (found == places_.end())
            return make_error(Errc::not_found, "the base has no tensor \"" + std::string(tensor) + "\"");
        return found->second.weight->read_source_rows(found->second.part, first, count, into);
    }

    bool has(std::string_view tensor) const override { return places_.contains(tensor); }

    void round_as_served(std::span<float> values) const override {
        if (quant_ == Quant::none) {
            if (bf16_) round_to_bf16(values);
            return;
        }
        QuantRows codes;
        codes.quant = quant_;
        codes.columns = kQuantGroup;  // whole rows are whole groups
        if (quantise(values, codes)) dequantise(codes, values);
    }

private:
    std::map<std::string, WeightPlace, std::less<>> places_;
    bool bf16_;
    Quant quant_;
};

}  // namespace

std::shared_ptr<const BaseValues> source_values(std::map<std::string, WeightPlace> places, torch::Dtype table_dtype,
                                                Quant table_quant) {
    return std::make_shared<SourceValues>(std::move(places), table_dtype == torch::kBFloat16, table_quant);
}

}  // namespace attune
