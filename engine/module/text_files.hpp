#pragma once

#include "attune/result.hpp"
#include "engine/module/module.hpp"
#include "engine/module/module_text.hpp"
#include "engine/module/package_files.hpp"
#include "engine/module/tokenizer_facts.hpp"

#include <cstddef>
#include <cstdint>
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

/// What a module's tokenizer has beyond the base's: added tokens, nothing else.
struct OwnTokens {
    AddedTokenFacts added;
    /// The files that list them, by path in the package, with the SHA-256 of what was read.
    std::map<std::string, std::string> files;
    /// At most what a tokenizer with them needs beside the base's, in bytes.
    std::uint64_t tokenizer_bytes = 0;
};

/// Holds tokenizer files against the base's by meaning. Any difference but more added tokens is Errc::invalid_module
/// naming the file and the part. Reads whole tokenizers: loads only.
Result<OwnTokens> read_own_tokens(const PackageFiles& files, const std::string& prefix,
                                  const std::filesystem::path& base_folder);

/// The same from the lists of added tokens alone, without `files`. Faults are left to the load, which names them.
OwnTokens look_for_own_tokens(const PackageFiles& files, const std::string& prefix,
                              const std::filesystem::path& base_folder);

/// Errc::invalid_module naming the tokens unless the weights have a row for each; `vocab_size`: rows of the base.
/// Weights with rows beyond the base's need a token among them: else nobody knows what these are for.
Result<void> check_token_rows(const AddedTokenFacts& added, const Module& module, int vocab_size);

}  // namespace attune
