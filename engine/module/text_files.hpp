#pragma once

#include "attune/result.hpp"
#include "engine/module/module.hpp"
#include "engine/module/module_text.hpp"
#include "engine/module/package_files.hpp"
#include "engine/module/tokenizer_facts.hpp"

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace attune {

/// Trainers like to save the tokenizer and the chat template beside an adapter. What is the base's own is ignored; what
/// is not is used or refused by name, never ignored. `prefix` is the adapter's folder in the package: "" or "adapter/";
/// the package's top is looked at too. `base_folder` is the base's model path.

/// A template other than the base's: text, or names of special tokens that it uses.
struct OwnTemplate {
    std::optional<TemplateSource> source;                 ///< absent: the base's
    std::map<std::string, std::vector<std::byte>> files;  ///< by path in the package: what was read for effect
};

/// The template files are read even where they turn out to be the base's. Errc::invalid_module names a broken one.
Result<OwnTemplate> read_own_template(PackageFiles& files, const std::string& prefix,
                                      const std::filesystem::path& base_folder);

/// Holds tokenizer files against the base's by meaning. The result is what the module has beyond them: added tokens.
/// Any other difference is Errc::invalid_module naming the file and the part. Reads whole tokenizers: loaders only.
Result<AddedTokenFacts> own_added_tokens(const PackageFiles& files, const std::string& prefix,
                                         const std::filesystem::path& base_folder);

/// Ids that the module's weights carry rows for. A kind that brings rows adds them here.
std::vector<TokenId> token_rows(const Module& module);

/// Errc::invalid_module naming the tokens unless the weights have a row for each.
Result<void> check_token_rows(const AddedTokenFacts& added, const Module& module);

}  // namespace attune
