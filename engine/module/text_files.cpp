#include "engine/module/text_files.hpp"

#include "engine/files/hash.hpp"
#include "engine/files/quote.hpp"
#include "engine/files/safetensors.hpp"
#include "engine/module/json_text.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <system_error>
#include <utility>

namespace attune {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxConfigBytes = 8u << 20;
constexpr std::uint64_t kMaxTemplateBytes = 1u << 20;
constexpr const char* kToolTemplate = "additional_chat_templates/tool_use.jinja";

std::string text_of(const std::vector<std::byte>& bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// ---------------------------------------------------------------- templates

/// What one folder says of templates; `tokens` also where there is no template.
struct FolderText {
    std::optional<std::string> usual;
    std::optional<std::string> with_tools;
    std::vector<std::pair<std::string, std::string>> tokens;
};

/// Reads a file of a folder: nothing when it is not there.
using ReadText =
    std::function<Result<std::optional<std::vector<std::byte>>>(const std::string& name, std::uint64_t limit)>;

void take_named_tokens(const OrderedJson& config, FolderText& text) {
    for (const char* name :
         {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
        const OrderedJson& value = member(config, name);
        const OrderedJson& content = value.is_object() ? member(value, "content") : value;
        if (content.is_string()) text.tokens.emplace_back(name, content.get<std::string>());
    }
}

/// `chat_template` is a text, or a list of named ones.
Result<void> take_templates(const OrderedJson& config, const std::string& file, FolderText& text) {
    const OrderedJson& value = member(config, "chat_template");
    if (value.is_null()) return {};
    if (value.is_string()) {
        text.usual = value.get<std::string>();
        return {};
    }
    if (value.is_array())
        for (const OrderedJson& one : value) {
            const OrderedJson& source = one.is_object() ? member(one, "template") : value;
            if (!source.is_string()) continue;
            if (member(one, "name") == "default") text.usual = source.get<std::string>();
            if (member(one, "name") == "tool_use") text.with_tools = source.get<std::string>();
        }
    if (!text.usual)
        return make_error(Errc::invalid_module, file + ": chat_template is neither a text nor a list with a default");
    return {};
}

Result<FolderText> read_folder(const ReadText& read) {
    FolderText text;
    // The later file counts more, as in transformers.
    for (const char* name : {"tokenizer_config.json", "chat_template.json"}) {
        const auto bytes = read(name, kMaxConfigBytes);
        if (!bytes) return bytes.error();
        if (!*bytes) continue;
        const auto config = parse_json_object(**bytes, name);
        if (!config) return config.error();
        if (auto taken = take_templates(*config, name, text); !taken) return taken.error();
        if (name == std::string("tokenizer_config.json")) take_named_tokens(*config, text);
    }
    const auto bytes = read("chat_template.jinja", kMaxTemplateBytes);
    if (!bytes) return bytes.error();
    if (!*bytes) return text;
    text.usual = text_of(**bytes);
    const auto tools = read(kToolTemplate, kMaxTemplateBytes);
    if (!tools) return tools.error();
    text.with_tools.reset();
    if (*tools) text.with_tools = text_of(**tools);
    return text;
}

/// The base was read when the server started: what is broken in it by now is not the module's fault.
FolderText read_base(const fs::path& folder) {
    if (folder.empty()) return {};
    auto text = read_folder([&](const std::string& name, std::uint64_t limit) {
        auto bytes = read_file(folder / name, limit);
        return Result<std::optional<std::vector<std::byte>>>(bytes ? std::optional(*std::move(bytes)) : std::nullopt);
    });
    return text ? *std::move(text) : FolderText{};
}

// Jinja drops one newline at the end, and a checkout may have changed the others.
std::string comparable(const std::optional<std::string>& source) {
    std::string text = source.value_or("");
    std::erase(text, '\r');
    if (text.ends_with('\n')) text.pop_back();
    return text;
}

/// The module's words before the base's; nothing when the outcome is the base's.
std::optional<TemplateSource> own_source(const FolderText& module, const FolderText& base) {
    const FolderText& text = module.usual ? module : base;
    if (!text.usual) return std::nullopt;
    TemplateSource own{*text.usual, text.with_tools, base.tokens};
    bool differs = module.usual && (comparable(module.usual) != comparable(base.usual) ||
                                    comparable(module.with_tools) != comparable(base.with_tools));
    for (const auto& [name, content] : module.tokens) {
        auto found = std::find_if(own.named_tokens.begin(), own.named_tokens.end(),
                                  [&, wanted = &name](const auto& token) { return token.first == *wanted; });
        if (found == own.named_tokens.end()) found = own.named_tokens.insert(found, {name, ""});
        // pad_token and its like change with every trainer and are in hardly any template.
        if (found->second != content && own.mentions(name)) differs = true;
        found->second = content;
    }
    return differs ? std::optional(std::move(own)) : std::nullopt;
}

// ---------------------------------------------------------------- tokenizers

// Slice by slice: a tokenizer of 20 MB must not be held twice.
bool base_folder_has_same(const ReadOnlyFile& a, const fs::path& base_folder, const char* name) {
    if (base_folder.empty()) return false;
    const auto b = ReadOnlyFile::open(base_folder / name);
    if (!b || a.size() != b->size()) return false;
    std::vector<std::byte> bytes_a(1 << 16);
    std::vector<std::byte> bytes_b(1 << 16);
    for (std::uint64_t at = 0; at < a.size(); at += bytes_a.size()) {
        const std::size_t count = std::min<std::uint64_t>(bytes_a.size(), a.size() - at);
        const std::span<std::byte> from_a(bytes_a.data(), count);
        const std::span<std::byte> from_b(bytes_b.data(), count);
        if (!a.read(at, from_a) || !b->read(at, from_b) || !std::equal(from_a.begin(), from_a.end(), from_b.begin()))
            return false;
    }
    return true;
}

Error other_tokenizer(const std::string& file, const std::string& what) {
    return make_error(Errc::invalid_module,
                      file + ": " + what + "; a module may only add tokens to its base's tokenizer");
}

/// The base's added tokens, of all files that may list them.
Result<TokenizerFacts> base_facts(const fs::path& folder) {
    std::error_code failed;
    if (folder.empty() || !fs::is_regular_file(folder / "tokenizer.json", failed))
        return make_error(Errc::invalid_module, "the base has no tokenizer.json to hold it against");
    const auto file = ReadOnlyFile::open(folder / "tokenizer.json");
    if (!file) return make_error(Errc::invalid_module, "the base's tokenizer.json cannot be read");
    auto facts = read_tokenizer_facts(*file, "the base's tokenizer.json");
    if (!facts) return facts;
    if (const auto bytes = read_file(folder / "tokenizer_config.json", kMaxConfigBytes))
        if (const auto config = parse_json_object(*bytes, "tokenizer_config.json"))
            facts->added.merge(added_tokens_decoder(*config));
    return facts;
}

/// A node of the trie for each byte of a content, an entry for each token; generous.
std::uint64_t tokenizer_bytes(const AddedTokenFacts& all) {
    constexpr std::uint64_t kByteOfContent = 128;
    constexpr std::uint64_t kToken = 512;
    std::uint64_t bytes = 0;
    for (const auto& [content, fact] : all) bytes += kToken + content.size() * kByteOfContent;
    return bytes;
}

/// Of a file that lists added tokens: those that neither the base nor a file before it has, and the file itself.
Result<void> take_new_tokens(const std::string& file, const std::string& sha256, const AddedTokenFacts& listed,
                             const AddedTokenFacts& base, OwnTokens& own) {
    bool any = false;
    for (const auto& [content, fact] : listed) {
        const auto known = base.find(content);
        const auto taken = own.added.find(content);
        const std::string who = "added token " + in_quotes(content) + " (id " + std::to_string(fact.id) + ")";
        if (known != base.end()) {
            if (!(known->second == fact)) return other_tokenizer(file, who + " is not as in the base");
        } else if (taken == own.added.end()) {
            own.added.emplace(content, fact);
            any = true;
        } else if (!(taken->second == fact)) {
            return other_tokenizer(file, who + " is not as in the module's other files");
        }
    }
    if (!any) return {};
    own.files[file] = sha256;
    AddedTokenFacts all = base;
    all.insert(own.added.begin(), own.added.end());
    own.tokenizer_bytes = tokenizer_bytes(all);
    return {};
}

Result<void> compare_tokenizer(const ReadOnlyFile& file, const std::string& name, const fs::path& base_folder,
                               OwnTokens& tokens) {
    const auto base = base_facts(base_folder);
    if (!base) return other_tokenizer(name, base.error().message);
    const auto own = read_tokenizer_facts(file, name);
    if (!own) return own.error();
    for (const auto& [part, digest] : base->parts) {
        const auto found = own->parts.find(part);
        if (found == own->parts.end() || found->second != digest)
            return other_tokenizer(name, "its " + part + " is not the base's");
    }
    for (const auto& [part, digest] : own->parts)
        if (!base->parts.contains(part)) return other_tokenizer(name, "its " + part + " is not the base's");
    for (const auto& [content, fact] : base->added)
        if (!own->added.contains(content) && fact.id >= 0)
            return other_tokenizer(name, "the base's added token " + in_quotes(content) + " is missing");
    return take_new_tokens(name, own->sha256, own->added, base->added, tokens);
}

/// Tokens that only tokenizer_config.json lists count as well.
Result<void> compare_decoder(const ReadOnlyFile& file, const std::string& name, const fs::path& base_folder,
                             OwnTokens& tokens) {
    if (file.size() > kMaxConfigBytes) return make_error(Errc::invalid_module, name + " is too large");
    std::vector<std::byte> bytes(file.size());
    if (!file.read(0, bytes)) return make_error(Errc::invalid_module, name + " cannot be read");
    const auto config = parse_json_object(bytes, name);
    if (!config) return config.error();
    const AddedTokenFacts own = added_tokens_decoder(*config);
    if (own.empty()) return {};
    if (const auto base_bytes = read_file(base_folder / "tokenizer_config.json", kMaxConfigBytes);
        base_bytes && !base_folder.empty())
        if (const auto base_config = parse_json_object(*base_bytes, name))
            if (own == added_tokens_decoder(*base_config)) return {};
    const auto base = base_facts(base_folder);
    if (!base) return other_tokenizer(name, base.error().message);
    Sha256 hash;
    hash.update(bytes);
    return take_new_tokens(name, hash.hex(), own, base->added, tokens);
}

/// The package's top, and the adapter's folder where that is another.
std::vector<std::string> folders_of(const std::string& prefix) {
    if (prefix.empty()) return {""};
    return {prefix, ""};
}

}  // namespace

Result<OwnTemplate> read_own_template(PackageFiles& files, const std::string& prefix, const fs::path& base_folder) {
    OwnTemplate own;
    FolderText text;
    for (const std::string& folder : folders_of(prefix)) {
        auto found = read_folder(
            [&](const std::string& name, std::uint64_t limit) -> Result<std::optional<std::vector<std::byte>>> {
                const std::string relative = folder + name;
                if (!files.has(relative)) return std::optional<std::vector<std::byte>>();
                auto bytes = files.read_text(relative, limit);
                if (!bytes) return bytes.error();
                own.files[relative] = *bytes;
                return std::optional(*std::move(bytes));
            });
        if (!found) return found.error();
        // The adapter's folder was written by whoever trained it; the package's top only fills what it leaves open.
        if (!text.usual && found->usual) {
            text.usual = std::move(found->usual);
            text.with_tools = std::move(found->with_tools);
        }
        if (text.tokens.empty()) text.tokens = std::move(found->tokens);
    }
    if (own.files.empty()) return own;
    own.source = own_source(text, read_base(base_folder));
    if (!own.source) own.files.clear();
    return own;
}

Result<OwnTokens> read_own_tokens(const PackageFiles& files, const std::string& prefix, const fs::path& base_folder) {
    OwnTokens tokens;
    for (const std::string& folder : folders_of(prefix)) {
        const bool fast = files.has(folder + "tokenizer.json");
        for (const char* name : {"tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json",
                                 "vocab.txt", "merges.txt", "added_tokens.json"}) {
            const std::string relative = folder + name;
            const bool is_config = name == std::string("tokenizer_config.json");
            // The slow tokenizers' files only feed tokenizer.json, which decides where it is there.
            if (!files.has(relative) || (fast && !is_config && name != std::string("tokenizer.json"))) continue;
            const auto content = files.look(relative);
            if (!content) return content.error();
            if (base_folder_has_same(*content, base_folder, name)) continue;
            Result<void> same;
            if (name == std::string("tokenizer.json"))
                same = compare_tokenizer(*content, relative, base_folder, tokens);
            else if (is_config)
                same = compare_decoder(*content, relative, base_folder, tokens);
            else
                same = other_tokenizer(relative, "it is not the base's");
            if (!same) return same.error();
        }
    }
    return tokens;
}

OwnTokens look_for_own_tokens(const PackageFiles& files, const std::string& prefix, const fs::path& base_folder) {
    AddedTokenFacts listed;
    const auto list = [&listed](Result<AddedTokenFacts> found) {
        if (found) listed.merge(*found);
    };
    const auto list_config = [&](const ReadOnlyFile& file) {
        std::vector<std::byte> bytes(std::min<std::uint64_t>(file.size(), kMaxConfigBytes));
        if (!file.read(0, bytes)) return;
        if (const auto config = parse_json_object(bytes, "tokenizer_config.json")) list(added_tokens_decoder(*config));
    };
    const auto list_folder = [&](const std::function<Result<ReadOnlyFile>(const char* name)>& open) {
        if (const auto file = open("tokenizer.json")) list(read_added_tokens(*file, "tokenizer.json"));
        if (const auto file = open("tokenizer_config.json")) list_config(*file);
    };
    for (const std::string& folder : folders_of(prefix))
        list_folder([&](const char* name) -> Result<ReadOnlyFile> {
            if (!files.has(folder + name)) return make_error(Errc::not_found, name);
            auto file = files.look(folder + name);
            if (file && base_folder_has_same(*file, base_folder, name)) return make_error(Errc::not_found, name);
            return file;
        });
    if (listed.empty()) return {};
    AddedTokenFacts own = std::exchange(listed, {});
    list_folder([&](const char* name) { return ReadOnlyFile::open(base_folder / name); });
    OwnTokens tokens;
    std::copy_if(own.begin(), own.end(), std::inserter(tokens.added, tokens.added.end()),
                 [&](const auto& token) { return !listed.contains(token.first); });
    if (tokens.added.empty()) return {};
    listed.merge(own);
    tokens.tokenizer_bytes = tokenizer_bytes(listed);
    return tokens;
}

Result<void> check_token_rows(const AddedTokenFacts& added, const Module& module, int vocab_size) {
    const std::int64_t end = static_cast<std::int64_t>(vocab_size) + module.added_ids();
    const auto has_row = [&](TokenId id) {
        if (id < 0 || id >= end) return false;
        if (id >= vocab_size) return true;
        if (!module.embedding) return false;
        const std::vector<TokenId>& rows = module.embedding->tokens;
        return module.embedding->whole || module.embedding->rank > 0 ||
               std::binary_search(rows.begin(), rows.end(), id);
    };
    std::string missing;
    int more = 0;
    for (const auto& [content, fact] : added) {
        if (has_row(fact.id)) continue;
        constexpr std::size_t kNamed = 300;  // bytes of names; the rest is counted
        if (missing.size() > kNamed)
            ++more;
        else
            missing += (missing.empty() ? "" : ", ") + in_quotes(content) + " (id " + std::to_string(fact.id) + ")";
    }
    if (more > 0) missing += " and " + std::to_string(more) + " more";
    if (!missing.empty())
        return make_error(Errc::invalid_module, "added token " + missing + " has no row in these weights");
    const bool named =
        std::any_of(added.begin(), added.end(), [&](const auto& t) { return t.second.id >= vocab_size; });
    if (module.added_ids() > 0 && !named)
        return make_error(Errc::invalid_module, "its tables have " + std::to_string(module.added_ids()) +
                                                    " rows more than this base's, but no tokenizer.json beside it "
                                                    "names a token for them");
    return {};
}

}  // namespace attune
