#pragma once

#include "engine/module/site_input.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace attune {

// Tables of tokens that were resized for new ones: PEFT saves both whole, in several forms. Of rows that the base has,
// the kinds of table_kinds.cpp decide; those beyond are gathered in PlanContext::new_tokens, whose plan_new_rows()
// (site_input.hpp) comes last.

inline const AdapterSite kEmbeddingSite{.kind = AdapterSite::Kind::embedding};
inline const AdapterSite kHeadSite{.projection = Projection::head};

using TakeRows = std::function<Result<void>(std::int64_t first, std::span<float> rows, const BaseValues* base)>;

/// A table's rows that the base has go to `known`; what lies beyond is kept.
TakeRows split_rows(const SiteInput& input, const PlanContext& context, TakeRows known);

/// Copies a row of a new token; rows that the file's tables lack are plan_new_rows()'s to refuse.
void set_new_row(std::vector<float>& rows, std::int64_t row, std::span<const float> values);

/// The file has a table there, of whatever form.
bool has_table(const AdapterSite& site, const PlanContext& context);

/// ensure_weight_tying, and the base is tied.
bool ties_saves(const PlanContext& context);

/// The head's new rows are the embedding's: a tied base, a file with one table, and PEFT did not part them by saving
/// that one as a module of its own.
bool shares_rows(const PlanContext& context);
/// Makes it so; before any LoRA acts on the embedding.
void plan_shared_rows(const PlanContext& context);

}  // namespace attune
