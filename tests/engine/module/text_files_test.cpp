#include "engine/module/text_files.hpp"
#include "engine/files/hash.hpp"
#include "engine/module/module_folder.hpp"
#include "engine/module/module_loader.hpp"

#include <catch2/catch.hpp>

#include <fstream>

namespace attune {
namespace {

using nlohmann::ordered_json;
using test::ModuleFolder;
using test::small_base;

const std::string kTemplate = "{{ bos_token }}{{ messages }}";

/// A small tokenizer.json as the library writes it.
ordered_json tokenizer() {
    return ordered_json::parse(R"({
      "version": "1.0", "truncation": null, "padding": null,
      "added_tokens": [
        {"id": 0, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
        {"id": 1, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
      "normalizer": null,
      "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
      "post_processor": null,
      "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
      "model": {"type": "BPE", "dropout": null, "unk_token": null, "fuse_unk": false, "byte_fallback": false,
                "ignore_merges": false, "vocab": {"a": 2, "b": 3, "ab": 4}, "merges": [["a", "b"]]}})");
}

ordered_json added(int id, const std::string& content, bool special = true) {
    return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
            {"rstrip", false}, {"normalized", false}, {"special", special}};
}

/// A base whose every row holds its number.
struct CountedRows final : BaseValues {
    Result<void> read_rows(std::string_view, std::int64_t first, std::int64_t, std::span<float> into) const override {
        for (std::size_t i = 0; i < into.size(); ++i)
            into[i] = static_cast<float>(first + static_cast<std::int64_t>(i / 16));
        return {};
    }
    bool has(std::string_view) const override { return false; }
    void round_as_served(std::span<float>) const override {}
};

/// A module's folder beside its base's, which has a tokenizer and a template.
struct TextFolder : ModuleFolder {
    TextFolder() {
        base.write_text("tokenizer.json", tokenizer().dump());
        base.write_text("chat_template.jinja", kTemplate);
        base.write_text("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}})");
        write();
        limits.base_folder = base.path();
        limits.make_template = [this](const TemplateSource& source,
                                      const Tokenizer*) -> Result<std::shared_ptr<const ChatTemplate>> {
            made.push_back(source);
            if (source.usual.find("endfor") != std::string::npos)
                return make_error(Errc::invalid_argument, "chat template: unexpected endfor");
            return std::shared_ptr<const ChatTemplate>();
        };
        limits.make_tokenizer = [this](const AddedTokenFacts& added) -> Result<std::shared_ptr<const Tokenizer>> {
            asked.push_back(added);
            if (added.contains("<taken>")) return make_error(Errc::invalid_argument, "it is taken");
            // Never looked into: what counts here is that the module holds it.
            return std::shared_ptr<const Tokenizer>(std::make_shared<int>(), reinterpret_cast<const Tokenizer*>(this));
        };
    }
    bool header_says_own_tokenizer() {
        const auto header = inspect_module(path(), small_base(), limits);
        if (!header) FAIL(header.error().message);
        return header->own_tokenizer;
    }
    /// Rows for the base's tokens `ids`, as trainable_token_indices has them.
    void train_tokens(const std::vector<int>& ids) {
        config["trainable_token_indices"] = ids;
        const auto count = static_cast<std::int64_t>(ids.size());
        tensors["base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta"] = {
            {count, 16}, std::vector<float>(static_cast<std::size_t>(count) * 16, 0.5F)};
        write();
    }
    /// Both tables with `more` rows than the base's, as PEFT saves resized ones. Row i of the file holds i.
    void resize_tables(int more, bool with_head = true) {
        test::FileTensor table{{32 + more, 16}, {}};
        for (int row = 0; row < 32 + more; ++row)
            for (int i = 0; i < 16; ++i) table.values.push_back(static_cast<float>(row));
        tensors["base_model.model.model.embed_tokens.weight"] = table;
        if (with_head) tensors["base_model.model.lm_head.weight"] = table;
        write();
    }
    void add_token(const ordered_json& token) {
        own["added_tokens"].push_back(token);
        write_text("tokenizer.json", own.dump());
    }

    ModulePtr load() {
        auto module = load_module("m", path(), small_base(), limits);
        if (!module) FAIL(module.error().message);
        return *module;
    }
    std::string fault() {
        const auto module = load_module("m", path(), small_base(), limits);
        if (module) return "";
        CHECK(module.error().code == Errc::invalid_module);
        return module.error().message;
    }
    bool header_says_own() {
        const auto header = inspect_module(path(), small_base(), limits);
        if (!header) FAIL(header.error().message);
        return header->own_template;
    }

    ModuleFolder base;
    ModuleLimits limits;
    std::vector<TemplateSource> made;
    std::vector<AddedTokenFacts> asked;
    ordered_json own = tokenizer();
};

TEST_CASE_METHOD(TextFolder, "the base's own tokenizer and template beside an adapter are ignored",
                 "[engine][module][B28]") {
    const std::string generation = load()->id.generation;
    write_text("tokenizer.json", tokenizer().dump());
    write_text("chat_template.jinja", kTemplate + "\n");
    write_text("tokenizer_config.json", R"({"bos_token": "<s>", "pad_token": "</s>", "padding_side": "left"})");
    write_text("special_tokens_map.json", "{}");
    write_text("vocab.json", "{}");  // only feeds tokenizer.json
    const ModulePtr module = load();
    CHECK_FALSE(module->text);
    CHECK(module->id.generation == generation);
    CHECK_FALSE(header_says_own());
    CHECK(made.empty());
}

TEST_CASE_METHOD(TextFolder, "a tokenizer that means the base's is ignored, however it is written",
                 "[engine][module][B28]") {
    ordered_json other = tokenizer();
    other["version"] = "2.0";
    other["padding"] = {{"strategy", "BatchLongest"}};
    other["truncation"] = {{"max_length", 512}};
    other["added_tokens"] = ordered_json::array({added(1, "</s>"), added(0, "<s>")});
    other["model"].erase("ignore_merges");
    other["model"]["merges"] = {"a b"};
    other["model"]["vocab"] = ordered_json::parse(R"({"ab": 4, "b": 3, "a": 2})");
    other["model"]["continuing_subword_prefix"] = "";
    write_text("tokenizer.json", other.dump(2));
    CHECK(fault().empty());
}

TEST_CASE_METHOD(TextFolder, "a tokenizer that differs is refused with the part that does", "[engine][module][B28]") {
    const auto fault_with = [&](const std::function<void(ordered_json&)>& change) {
        ordered_json other = tokenizer();
        change(other);
        write_text("tokenizer.json", other.dump());
        return fault();
    };
    const std::string rest = "; a module may only add tokens to its base's tokenizer";
    CHECK(fault_with([](auto& t) { t["model"]["vocab"]["a"] = 5; }) ==
          "tokenizer.json: its model is not the base's" + rest);
    CHECK(fault_with([](auto& t) { t["model"]["merges"] = ordered_json::array(); }) ==
          "tokenizer.json: its model is not the base's" + rest);
    CHECK(fault_with([](auto& t) { t["model"]["ignore_merges"] = true; }) ==
          "tokenizer.json: its model is not the base's" + rest);
    CHECK(fault_with([](auto& t) {
              t["normalizer"] = {{"type", "NFC"}};
          }) == "tokenizer.json: its normalizer is not the base's" + rest);
    CHECK(fault_with([](auto& t) { t["pre_tokenizer"]["add_prefix_space"] = true; }) ==
          "tokenizer.json: its pre_tokenizer is not the base's" + rest);
    CHECK(fault_with([](auto& t) { t["decoder"] = nullptr; }) ==
          "tokenizer.json: its decoder is not the base's" + rest);
    CHECK(fault_with([](auto& t) { t["added_tokens"].erase(1); }) ==
          "tokenizer.json: the base's added token \"</s>\" is missing" + rest);
    CHECK(fault_with([](auto& t) { t["added_tokens"][1]["id"] = 7; }) ==
          "tokenizer.json: added token \"</s>\" (id 7) is not as in the base" + rest);
    CHECK(fault_with([](auto& t) { t["added_tokens"][1]["lstrip"] = true; }) ==
          "tokenizer.json: added token \"</s>\" (id 1) is not as in the base" + rest);
    write_text("tokenizer.json", "[");
    CHECK(fault() == "tokenizer.json is no tokenizer.json");
    write_text("tokenizer.json", std::string(100000, '['));
    CHECK(fault() == "tokenizer.json is no tokenizer.json");
    limits.base_folder.clear();
    write_text("tokenizer.json", tokenizer().dump());
    CHECK(fault() == "tokenizer.json: the base has no tokenizer.json to hold it against" + rest);
}

TEST_CASE_METHOD(TextFolder, "more added tokens than the base's need rows in the weights", "[engine][module][B28]") {
    ordered_json other = tokenizer();
    other["added_tokens"].push_back(added(32, "<tool>"));
    write_text("tokenizer.json", other.dump());
    CHECK(fault() == "added token \"<tool>\" (id 32) has no row in these weights");
    other["added_tokens"].push_back(added(33, "<think>", false));
    write_text("tokenizer.json", other.dump());
    CHECK(fault() == "added token \"<think>\" (id 33), \"<tool>\" (id 32) has no row in these weights");

    Module module;
    module.embedding = EmbeddingTerm{};
    module.embedding->tokens = {8};
    module.new_tokens = NewTokens{1, {}, {}};
    const auto missing = [&](TokenId id) {
        const auto checked = check_token_rows({{"<a>", {id}}, {"<b>", {32}}}, module, 32);
        return checked ? std::string() : checked.error().message;
    };
    CHECK(missing(8).empty());
    CHECK(missing(9) == "added token \"<a>\" (id 9) has no row in these weights");
    CHECK(missing(33) == "added token \"<a>\" (id 33) has no row in these weights");
    CHECK(missing(-1) == "added token \"<a>\" (id -1) has no row in these weights");
    // A table that was saved whole has all of the base's, and so has a LoRA on it.
    module.embedding->whole = true;
    CHECK(missing(9).empty());
    module.embedding->whole = false;
    module.embedding->rank = 4;
    CHECK(missing(9).empty());
    CHECK(missing(33) == "added token \"<a>\" (id 33) has no row in these weights");
    module.new_tokens.reset();
    CHECK(check_token_rows({}, module, 32));
}

TEST_CASE_METHOD(TextFolder, "a tokenizer with more added tokens is used where the weights have their rows",
                 "[engine][module][B28]") {
    limits.base_values = std::make_shared<CountedRows>();
    const ModulePtr plain = load();
    CHECK_FALSE(header_says_own_tokenizer());
    train_tokens({9, 8});
    const ModulePtr trained = load();
    CHECK_FALSE(trained->text);
    add_token(added(8, "<tool>"));
    add_token(added(9, "<step>", false));
    CHECK(header_says_own_tokenizer());
    const ModulePtr module = load();
    REQUIRE(module->text);
    CHECK(module->text->tokenizer);
    CHECK_FALSE(module->text->chat_template);
    CHECK(module->text->vocab_size == 32);
    REQUIRE(asked.size() == 1);
    CHECK(asked[0].size() == 2);
    CHECK(asked[0].at("<tool>") == AddedTokenFact{8, false, false, false, false, true});
    CHECK_FALSE(asked[0].at("<step>").special);
    CHECK(module->text->added == asked[0]);
    // Its file is read for effect now, and what it takes is counted and was announced.
    CHECK(module->id.generation != trained->id.generation);
    CHECK(module->host_bytes > trained->host_bytes);
    CHECK(inspect_module(path(), small_base(), limits)->parsed_bytes >= module->host_bytes);
    own["padding"] = {{"strategy", "BatchLongest"}};
    write_text("tokenizer.json", own.dump());
    CHECK(load()->id.generation != module->id.generation);

    // A second list of the same tokens must agree.
    ordered_json listing = {{"added_tokens_decoder", {{"8", added(8, "<tool>")}}}};
    write_text("tokenizer_config.json", listing.dump());
    CHECK(fault().empty());
    listing["added_tokens_decoder"]["8"]["special"] = false;
    write_text("tokenizer_config.json", listing.dump());
    CHECK(
        fault() ==
        "tokenizer_config.json: added token \"<tool>\" (id 8) is not as in the module's other files; a module may only "
        "add tokens to its base's tokenizer");
    std::filesystem::remove(path() / "tokenizer_config.json");

    add_token(added(10, "<other>"));
    CHECK(fault() == "added token \"<other>\" (id 10) has no row in these weights");
    own["added_tokens"].erase(own["added_tokens"].size() - 1);
    own["added_tokens"].back()["content"] = "<taken>";
    write_text("tokenizer.json", own.dump());
    CHECK(fault() == "the module's own tokenizer: it is taken");
    limits.make_tokenizer = nullptr;
    CHECK(fault() == "a module with its own tokenizer needs a base with a tokenizer");
}

TEST_CASE_METHOD(TextFolder, "tables with more rows than the base's bring the rows of new tokens",
                 "[engine][module][B28]") {
    limits.base_values = std::make_shared<CountedRows>();
    resize_tables(2);
    CHECK(fault() ==
          "its tables have 2 rows more than this base's, but no tokenizer.json beside it names a token for them");
    add_token(added(32, "<tool>"));
    const ModulePtr module = load();
    REQUIRE(module->new_tokens);
    CHECK(module->new_tokens->count == 2);  // one more row, to a round number of them
    CHECK(module->new_tokens->input.size() == 32);
    CHECK(module->new_tokens->input.front() == 32);
    CHECK(module->new_tokens->head.back() == 33);
    CHECK_FALSE(module->embedding);  // the base's own rows are copies
    CHECK_FALSE(module->head_rows);
    CHECK(module->text->vocab_size == 34);
    CHECK(inspect_module(path(), small_base(), limits)->parsed_bytes >= module->host_bytes);

    // Rows trained on top of such tables.
    tensors["base_model.model.model.embed_tokens.token_adapter.base_layer.weight"] =
        tensors["base_model.model.model.embed_tokens.weight"];
    tensors.erase("base_model.model.model.embed_tokens.weight");
    train_tokens({33, 4});
    const ModulePtr trained = load();
    CHECK(trained->new_tokens->input.front() == 32);
    CHECK(trained->new_tokens->input.back() == 0.5F);
    CHECK(trained->new_tokens->head.back() == 33);  // not tied
    CHECK(trained->embedding->tokens == std::vector<TokenId>{4});
    train_tokens({34});
    CHECK(fault() == "adapter_model.safetensors: trainable_token_indices names token 34, the file's tables have 34");
}

TEST_CASE_METHOD(TextFolder, "a LoRA on a resized embedding is a part of its new rows", "[engine][module][B28]") {
    limits.base_values = std::make_shared<CountedRows>();
    resize_tables(1);
    add_token(added(32, "<tool>"));
    const std::string path = "base_model.model.model.embed_tokens.";
    tensors[path + "base_layer.weight"] = tensors[path + "weight"];
    tensors.erase(path + "weight");
    tensors[path + "lora_embedding_A"] = {{4, 33}, std::vector<float>(4 * 33, 0.25F)};
    tensors[path + "lora_embedding_B"] = {{16, 4}, std::vector<float>(64, 0.5F)};
    config["target_modules"].push_back("embed_tokens");
    write();
    const ModulePtr module = load();
    CHECK(module->embedding->a.size() == 4 * 32);
    CHECK(module->new_tokens->input.front() == 32 + 2 * 4 * 0.25F * 0.5F);  // alpha / r = 2
    CHECK(module->new_tokens->head.front() == 32);
    config["ensure_weight_tying"] = true;
    write();
    CHECK(fault().empty());  // this base is not tied
}

TEST_CASE_METHOD(TextFolder, "new rows that are not complete are refused by what is missing", "[engine][module][B28]") {
    limits.base_values = std::make_shared<CountedRows>();
    add_token(added(32, "<tool>"));
    const std::string more = "adapter_model.safetensors: its tables have 1 rows more than this base's, but ";
    resize_tables(1, /*with_head=*/false);
    CHECK(fault() == more + "lm_head has none for them");
    resize_tables(1);
    tensors.erase("base_model.model.model.embed_tokens.weight");
    write();
    CHECK(fault() == more + "embed_tokens has none for them");
    resize_tables(1);
    config["alora_invocation_tokens"] = {1, 2};
    write();
    CHECK(fault() == more + "new tokens of an aLoRA are not supported");
    config.erase("alora_invocation_tokens");
    tensors["base_model.model.lm_head.weight"].shape = {34, 16};
    tensors["base_model.model.lm_head.weight"].values.resize(34 * 16);
    write();
    CHECK(fault().find("weight is [33, 16], this base wants [34, 16]") != std::string::npos);
    // Another base's table is no copy of this one's with rows added.
    resize_tables(1);
    for (float& value : tensors["base_model.model.model.embed_tokens.weight"].values) value += 20;
    write();
    CHECK(fault().find("it is not this base's: the adapter was made for another") != std::string::npos);
}

TEST_CASE_METHOD(TextFolder, "tokens listed in tokenizer_config.json alone count as well", "[engine][module][B28]") {
    ordered_json listing = {{"added_tokens_decoder", {{"0", added(0, "<s>")}, {"1", added(1, "</s>")}}}};
    write_text("tokenizer_config.json", listing.dump());
    CHECK(fault().empty());
    listing["added_tokens_decoder"]["40"] = added(40, "<new>");
    write_text("tokenizer_config.json", listing.dump());
    CHECK(fault() == "added token \"<new>\" (id 40) has no row in these weights");
    // The base may list a token there only, too.
    base.write_text("tokenizer_config.json", listing.dump());
    CHECK(fault().empty());
    listing["padding_side"] = "left";
    listing["added_tokens_decoder"]["0"]["special"] = false;
    write_text("tokenizer_config.json", listing.dump());
    CHECK(fault() ==
          "tokenizer_config.json: added token \"<s>\" (id 0) is not as in the base; a module may only add "
          "tokens to its base\'s tokenizer");
}

TEST_CASE_METHOD(TextFolder, "tokenizers of other forms must be the base's bytes", "[engine][module][B28]") {
    base.write_text("tokenizer.model", "pieces");
    write_text("tokenizer.model", "pieces");
    CHECK(fault().empty());
    write_text("tokenizer.model", "others");
    CHECK(fault() == "tokenizer.model: it is not the base's; a module may only add tokens to its base's tokenizer");
    write_text("tokenizer.json", tokenizer().dump());
    CHECK(fault().empty());  // which decides
}

TEST_CASE_METHOD(TextFolder, "another template becomes the module's, and its file a part of the generation",
                 "[engine][module][B28]") {
    const ModulePtr plain = load();
    const std::string other = "{{ bos_token }}other{{ messages }}";
    write_text("chat_template.jinja", other);
    const ModulePtr module = load();
    REQUIRE(module->text);
    CHECK(module->text->source.usual == other);
    CHECK(module->text->source.named_tokens ==
          std::vector<std::pair<std::string, std::string>>{{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    CHECK(header_says_own());
    CHECK(module->host_bytes == plain->host_bytes + other.size());
    CHECK(inspect_module(path(), small_base(), limits)->parsed_bytes >= module->host_bytes);

    const auto bytes = [&](const char* name) {
        std::ifstream file(path() / name, std::ios::binary);
        std::string text{std::istreambuf_iterator<char>(file), {}};
        return name + std::string(1, '\0') + std::to_string(text.size()) + '\0' + text;
    };
    Sha256 hash;
    for (const char* name : {"adapter_config.json", "adapter_model.safetensors", "chat_template.jinja"})
        hash.update(bytes(name));
    CHECK(module->id.generation == hash.hex());

    limits.make_template = nullptr;
    CHECK(fault() == "a module with its own chat template needs a base with a tokenizer");
}

TEST_CASE_METHOD(TextFolder, "a template in tokenizer_config.json counts where there is no file of its own",
                 "[engine][module][B28]") {
    write_text("tokenizer_config.json", R"({"chat_template": "in config"})");
    CHECK(load()->text->source.usual == "in config");
    write_text("chat_template.json", R"({"chat_template": "in json"})");
    CHECK(load()->text->source.usual == "in json");
    write_text("chat_template.jinja", "in file");
    CHECK(load()->text->source.usual == "in file");
    write_text("additional_chat_templates/tool_use.jinja", "for tools");
    CHECK(load()->text->source.with_tools == "for tools");
    write_text("chat_template.jinja", kTemplate);  // the base has none for tools
    CHECK(load()->text->source.with_tools == "for tools");

    std::filesystem::remove(path() / "chat_template.jinja");
    std::filesystem::remove(path() / "chat_template.json");
    write_text("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "usual"},
                                             {"name": "tool_use", "template": "tools"}, {"name": "rag", "template": "x"}]})");
    CHECK(load()->text->source.usual == "usual");
    CHECK(load()->text->source.with_tools == "tools");
    write_text("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "x"}]})");
    CHECK(fault() == "tokenizer_config.json: chat_template is neither a text nor a list with a default");
    write_text("tokenizer_config.json", "{");
    CHECK(fault() == "tokenizer_config.json is not valid JSON");
}

TEST_CASE_METHOD(TextFolder, "other names for special tokens count where the template uses them",
                 "[engine][module][B28]") {
    write_text("tokenizer_config.json", R"({"eos_token": "<s>", "pad_token": "<s>"})");
    CHECK_FALSE(load()->text);  // the base's template does not mention eos_token
    write_text("tokenizer_config.json", R"({"bos_token": "</s>"})");
    const ModulePtr module = load();
    REQUIRE(module->text);
    CHECK(module->text->source.usual == kTemplate);
    CHECK(module->text->source.named_tokens.front() == std::pair<std::string, std::string>{"bos_token", "</s>"});
}

TEST_CASE_METHOD(TextFolder, "a template that cannot be read makes the module fail", "[engine][module]") {
    write_text("chat_template.jinja", "{% endfor %}");
    CHECK(fault() == "the module's own template: chat template: unexpected endfor");
    write_text("chat_template.jinja", std::string((1 << 20) + 1, 'x'));
    CHECK(fault() == "chat_template.jinja has 1048577 bytes, the limit is 1048576");
}

TEST_CASE_METHOD(TextFolder, "in a package the adapter's folder goes before the package's top",
                 "[engine][module][B28]") {
    std::filesystem::remove(path() / "adapter_config.json");
    std::filesystem::remove(path() / "adapter_model.safetensors");
    write("zeta");
    write_text("module_config.json", R"({"format": 1, "name": "m", "adapter": {"path": "zeta"}})");
    write_text("chat_template.jinja", "top");
    const ModulePtr top = load();
    CHECK(top->text->source.usual == "top");
    write_text("zeta/chat_template.jinja", "near");
    CHECK(load()->text->source.usual == "near");
    CHECK(load()->id.generation != top->id.generation);
    std::filesystem::create_directory(path() / "elsewhere");
    write_text("zeta/tokenizer.json", "{}");
    CHECK(fault().starts_with("zeta/tokenizer.json: its "));
}

}  // namespace
}  // namespace attune
