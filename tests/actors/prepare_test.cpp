#include "actors/prepare.hpp"
#include "actors/names.hpp"
#include "support/fake_tokenizer.hpp"

#include <catch2/catch.hpp>

using namespace attune;

namespace {

PrepareParts parts_of(bool tokenizer = true) {
    PrepareParts parts;
    if (tokenizer) parts.tokenizer = std::make_shared<FakeTokenizer>();
    parts.vocab_size = 320;
    parts.max_model_len = 32;
    return parts;
}

PrepareTask task_of(Prompt prompt, std::optional<int> max_tokens = 4) {
    PrepareTask task;
    task.request.prompt = std::move(prompt);
    task.request.sampling.max_tokens = max_tokens;
    return task;
}

}  // namespace

TEST_CASE("a prompt of ids must lie within the vocabulary, and the error names the index", "[actors][prepare][E3]") {
    CHECK(prepare(parts_of(), task_of(TokenPrompt{{0, 319}})));
    const auto high = prepare(parts_of(), task_of(TokenPrompt{{0, 200000}}));
    REQUIRE_FALSE(high);
    CHECK(high.error().message.find("prompt[1] is 200000") != std::string::npos);
    CHECK_FALSE(prepare(parts_of(), task_of(TokenPrompt{{-1}})));
}

TEST_CASE("an empty prompt of any form is refused", "[actors][prepare][C14]") {
    CHECK(prepare(parts_of(), task_of(TokenPrompt{})).error().code == Errc::invalid_argument);
    CHECK(prepare(parts_of(), task_of(TextPrompt{"", true})).error().code == Errc::invalid_argument);
}

TEST_CASE("prompt and max_tokens must fit the context, and the error names the sizes", "[actors][prepare]") {
    const std::vector<TokenId> ids(30, 1);
    CHECK(prepare(parts_of(), task_of(TokenPrompt{ids}, 2)));
    const auto over = prepare(parts_of(), task_of(TokenPrompt{ids}, 3));
    REQUIRE_FALSE(over);
    CHECK(over.error().code == Errc::context_exceeded);
    CHECK(over.error().message.find("30 tokens") != std::string::npos);
    CHECK(over.error().message.find("32") != std::string::npos);
    CHECK_FALSE(prepare(parts_of(), task_of(TokenPrompt{ids}, 2147483647)));
}

TEST_CASE("a long text that cannot fit is refused without being encoded", "[actors][prepare]") {
    class Counting final : public FakeTokenizer {
    public:
        std::vector<TokenId> encode(std::string_view text, bool add_special_tokens,
                                    std::span<const TextSpan> literal) const override {
            ++encoded;
            return FakeTokenizer::encode(text, add_special_tokens, literal);
        }
        int min_tokens(std::string_view text) const override { return static_cast<int>(text.size() / 8); }
        mutable int encoded = 0;
    };
    const auto tokenizer = std::make_shared<Counting>();
    PrepareParts parts = parts_of();
    parts.tokenizer = tokenizer;
    parts.max_model_len = 20000;
    const auto over = prepare(parts, task_of(TextPrompt{std::string(200'000, 'a'), true}));
    REQUIRE_FALSE(over);
    CHECK(over.error().code == Errc::context_exceeded);
    CHECK(over.error().message.find("at least 25000 tokens") != std::string::npos);
    CHECK(over.error().message.find("context of 20000") != std::string::npos);
    CHECK(tokenizer->encoded == 0);

    // The bound alone does not exceed the limit, so the text is encoded and counted.
    const auto exact = prepare(parts, task_of(TextPrompt{std::string(100'000, 'a'), true}));
    REQUIRE_FALSE(exact);
    CHECK(exact.error().message.find("has 100000 tokens") != std::string::npos);
    CHECK(tokenizer->encoded == 1);
    CHECK(prepare(parts, task_of(TextPrompt{std::string(18'000, 'a'), true})));
    // /tokenize is asked for the ids themselves.
    CHECK(tokenize_prompt(parts, TextPrompt{std::string(200'000, 'a'), true}));
}

TEST_CASE("without max_tokens an answer may fill the context", "[actors][prepare]") {
    const auto open = prepare(parts_of(), task_of(TokenPrompt{{1, 2}}, std::nullopt));
    REQUIRE(open);
    CHECK(open->sampling.max_tokens == 30);
    CHECK_FALSE(prepare(parts_of(), task_of(TokenPrompt{std::vector<TokenId>(32, 1)}, std::nullopt)));
}

TEST_CASE("a KV cache smaller than the context is the limit", "[actors][prepare]") {
    PrepareParts parts = parts_of();
    parts.kv_positions = 16;
    const auto over = prepare(parts, task_of(TokenPrompt{std::vector<TokenId>(14, 1)}, 4));
    REQUIRE_FALSE(over);
    CHECK(over.error().message.find("KV cache of 16") != std::string::npos);
}

TEST_CASE("the prompt limit of the settings is its own error", "[actors][prepare]") {
    PrepareParts parts = parts_of();
    parts.limits.prompt_tokens = 2;
    CHECK(prepare(parts, task_of(TokenPrompt{{1, 2}})));
    CHECK(prepare(parts, task_of(TokenPrompt{{1, 2, 3}})).error().code == Errc::context_exceeded);
}

TEST_CASE("sampling parameters are checked before anything is computed", "[actors][prepare]") {
    PrepareTask task = task_of(TokenPrompt{{1}});
    task.request.sampling.temperature = -1;
    CHECK(prepare(parts_of(), task).error().code == Errc::invalid_argument);
    task = task_of(TokenPrompt{{1}});
    task.request.sampling.logit_bias = {{320, 1.0F}};
    CHECK_FALSE(prepare(parts_of(), task));
}

TEST_CASE("a seed is drawn once when none is given, and kept when given", "[actors][prepare]") {
    PrepareTask task = task_of(TokenPrompt{{1}});
    CHECK(prepare(parts_of(), task)->sampling.seed.has_value());
    task.request.sampling.seed = 7;
    CHECK(prepare(parts_of(), task)->sampling.seed == 7);
}

TEST_CASE("without a tokenizer text is refused and ids are served", "[actors][prepare]") {
    CHECK(prepare(parts_of(false), task_of(TextPrompt{"hello", true})).error().code == Errc::invalid_argument);
    CHECK(prepare(parts_of(false), task_of(TokenPrompt{{1}})));
}

TEST_CASE("a chat without a template is refused", "[actors][prepare]") {
    ChatPrompt chat;
    chat.messages_json = R"([{"role":"user","content":"hi"}])";
    CHECK(prepare(parts_of(), task_of(chat)).error().code == Errc::invalid_argument);
}

TEST_CASE("a chat without a template of the base's is written by a module's own", "[actors][prepare]") {
    PrepareTask task = task_of(ChatPrompt{R"([{"role":"user","content":"hi"}])", {}, {}, {}});
    task.text.chat_template = *ChatTemplate::parse("<{{ messages[0].content }}>", "", "");
    CHECK(prepare(parts_of(), task)->ids == std::vector<TokenId>{'<', 'h', 'i', '>'});
}

TEST_CASE("where rules choose, only their choice is prepared", "[actors][prepare]") {
    PrepareTask task = task_of(TokenPrompt{{999}});
    task.routes = std::make_shared<const RouteTable>();
    const auto chosen = prepare(parts_of(), task);
    REQUIRE(chosen);
    CHECK(chosen->choice->decision.rule == "default");
    CHECK(chosen->ids.empty());
}

TEST_CASE("a prompt that begins with the BOS gets no second one", "[actors][prepare][D1]") {
    /// Id 300 is <s>, which it puts before every text and finds in it; 301 is </s>, a token of no post-processor.
    class WithBos final : public FakeTokenizer {
    public:
        WithBos() : FakeTokenizer({{300, "<s>"}, {301, "</s>"}}, {300, 301}) {}
        std::vector<TokenId> encode(std::string_view text, bool add_special_tokens) const override {
            std::vector<TokenId> ids;
            if (add_special_tokens) ids.push_back(300);
            while (!text.empty()) {
                const bool bos = text.starts_with("<s>");
                const bool eos = text.starts_with("</s>");
                ids.push_back(bos ? 300 : eos ? 301 : static_cast<unsigned char>(text[0]));
                text.remove_prefix(bos ? 3 : eos ? 4 : 1);
            }
            return ids;
        }
    };
    PrepareParts parts = parts_of();
    parts.tokenizer = std::make_shared<WithBos>();
    const auto ids = [&](const char* text, bool add) { return *tokenize_prompt(parts, TextPrompt{text, add}); };
    CHECK(ids("a", true) == std::vector<TokenId>{300, 'a'});
    CHECK(ids("<s>a", true) == std::vector<TokenId>{300, 'a'});
    CHECK(ids("<s>a", false) == std::vector<TokenId>{300, 'a'});
    CHECK(ids("<s>", true) == std::vector<TokenId>{300});
    CHECK(ids("<s><s>a", false) == std::vector<TokenId>{300, 300, 'a'});  // as it was typed
    CHECK(ids("</s></s>a", true) == std::vector<TokenId>{300, 301, 301, 'a'});
    CHECK(ids("aa", true) == std::vector<TokenId>{300, 'a', 'a'});
}

TEST_CASE("work that was cancelled before it began is not done", "[actors][prepare]") {
    PrepareTask task = task_of(TokenPrompt{{1}});
    *task.cancelled = true;
    CHECK(prepare(parts_of(), task).error().code == Errc::cancelled);
}

TEST_CASE("routing looks at the last user message, as text or as parts", "[actors][prepare]") {
    ChatPrompt chat;
    chat.messages_json = R"([{"role":"user","content":"first"},{"role":"assistant","content":"mid"},
                            {"role":"user","content":[{"type":"text","text":"second "},{"type":"text","text":"part"}]},
                            {"role":"assistant","content":"last"}])";
    CHECK(routing_text(chat) == "second part");
    chat.messages_json = R"([{"role":"system","content":"x"}])";
    CHECK(routing_text(chat).empty());
    chat.messages_json = "broken";
    CHECK(routing_text(chat).empty());
    CHECK(routing_text(TextPrompt{"prompt", true}) == "prompt");
}

TEST_CASE("module names are letters of any script and digits, with dots and dashes inside", "[actors][names]") {
    for (const char* good : {"a", "legal-qa", "v1.2_x", "法律", "Ünïcode", "код", "हिन्दी", "7"})
        CHECK(check_module_name(good, "base"));
    for (const char* bad : {"", "auto", "base", "a b", "a/b", "../x", "-a", "a.", "_a", "a\n", "😀", "a`b"})
        CHECK_FALSE(check_module_name(bad, "base"));
    CHECK_FALSE(check_module_name("½", "base"));
    CHECK_FALSE(check_module_name("①", "base"));
    CHECK(check_module_name(std::string(128, 'x'), "base"));
    CHECK_FALSE(check_module_name(std::string(129, 'x'), "base"));
    CHECK_FALSE(check_module_name("e\xCC\x81", "base"));  // decomposed: not NFC
    CHECK_FALSE(check_module_name("\xFF", "base"));
    CHECK_FALSE(check_module_name(std::string("a\0b", 3), "base"));
}
