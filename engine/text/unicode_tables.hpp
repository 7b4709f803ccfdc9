#pragma once

#include <utility>
#include <vector>

namespace attune {

/// Where the reference tokenizers differ from Unicode 14, the version of the libraries we link (or older ones).
struct CodeRange {
    char32_t first = 0;
    char32_t last = 0;
};

struct NewerCategory {
    char name[3];  ///< general category, e.g. "Lo"
    char32_t first = 0;
    char32_t last = 0;
};

const std::vector<NewerCategory>& newer_categories();
const std::vector<std::pair<char32_t, char32_t>>& newer_lower_case();
const std::vector<CodeRange>& newer_numbers();
const std::vector<CodeRange>& punctuation_not_in_reference();
const std::vector<CodeRange>& punctuation_only_in_reference();
const std::vector<CodeRange>& marks_not_in_reference();
const std::vector<CodeRange>& accents_not_in_reference();  ///< nonspacing marks that BERT's normalizer keeps
const std::vector<CodeRange>& accents_only_in_reference();
const std::vector<CodeRange>& compatibility_not_in_reference();

/// Whether a sorted table holds the code point.
bool contains(const std::vector<CodeRange>& table, char32_t code_point);

}  // namespace attune
