#include "actors/module_template.hpp"
#include "actors/prompt_text.hpp"
#include "attune/token_sink.hpp"
#include "cli/commands.hpp"
#include "cli/open_base.hpp"
#include "cli/options.hpp"
#include "engine/module/module_loader.hpp"

#include <nlohmann/json.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace attune::cli {
namespace {

struct GenerateOptions {
    SettingOptions settings;
    std::string prompt;
    std::string system;
    bool raw = false;
    std::vector<std::string> modules;
    int max_tokens = 256;
    SamplingParams sampling;
    std::optional<std::uint64_t> seed;
    bool ignore_eos = false;
    bool stats = false;
};

/// Prints text as it comes and keeps how it ended.
class TerminalSink final : public TokenSink {
public:
    void push(OutputEvent event) override {
        if (const auto* token = std::get_if<TokenEvent>(&event)) {
            std::cout << token->text << std::flush;
        } else if (const auto* choice = std::get_if<ChoiceFinished>(&event)) {
            std::cout << choice->text << std::endl;
        } else if (const auto* finished = std::get_if<Finished>(&event)) {
            finished_ = *finished;
        } else if (const auto* failed = std::get_if<Failed>(&event)) {
            error_ = failed->error;
        }
    }

    bool has_ended() const { return finished_ || error_; }
    const std::optional<Finished>& finished() const { return finished_; }
    const std::optional<Error>& error() const { return error_; }

private:
    std::optional<Finished> finished_;
    std::optional<Error> error_;
};

struct GivenModule {
    std::string path;
    double weight = 1.0;
};

/// "PATH" or "PATH=WEIGHT"; a path that exists as written is a path.
GivenModule parse_module(const std::string& given) {
    std::error_code failed;
    const auto equals = given.rfind('=');
    if (equals == std::string::npos || std::filesystem::exists(given, failed)) return {given, 1.0};
    try {
        std::size_t used = 0;
        const double weight = std::stod(given.substr(equals + 1), &used);
        if (used == given.size() - equals - 1) return {given.substr(0, equals), weight};
    } catch (const std::exception&) {
        // Not a number after "=": the whole is a path.
    }
    return {given, 1.0};
}

struct Installed {
    JobModule module;
    std::shared_ptr<const ModuleText> text;  ///< null: the base's
};

Result<Installed> install(const OpenedBase& base, const std::string& given, const Settings& settings) {
    const GivenModule asked = parse_module(given);
    const NamedPath named = name_of_module(asked.path);
    ModuleLimits limits = module_limits(settings);
    limits.make_template = template_maker(base.tokenizer);
    limits.make_tokenizer = tokenizer_maker(base.tokenizer);
    limits.base_values = base.engine->base_values();
    auto module = load_module(named.name, named.path, base.engine->shape(), limits);
    if (!module) return make_error(module.error().code, "module " + given + ": " + module.error().message);
    auto slot = base.engine->install(*module);
    if (!slot) return make_error(slot.error().code, "module " + given + ": " + slot.error().message);
    return Installed{{*slot, {(*module)->id, asked.weight, (*module)->unverified}}, (*module)->text};
}

/// `tokenizer` and `chat_template`: the modules' or the base's; null where there is none.
Result<std::vector<TokenId>> encode(const GenerateOptions& options, const Tokenizer* tokenizer,
                                    const ChatTemplate* chat_template) {
    if (tokenizer == nullptr) {
        return make_error(Errc::invalid_argument, "the model has no tokenizer, so it cannot read text");
    }
    if (options.raw || chat_template == nullptr) return tokenizer->encode(options.prompt, true);
    auto messages = nlohmann::json::array();
    if (!options.system.empty()) messages.push_back({{"role", "system"}, {"content", options.system}});
    messages.push_back({{"role", "user"}, {"content", options.prompt}});
    ChatPrompt chat;
    chat.messages_json = messages.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    const auto rendered = chat_template->render(chat);
    if (!rendered) return rendered.error();
    return tokenizer->encode(rendered->text, false, rendered->literal);
}

Result<JobPtr> make_job(const OpenedBase& base, const GenerateOptions& options, const Settings& settings,
                        std::shared_ptr<TokenSink> sink) {
    std::vector<JobModule> modules;
    std::vector<NamedText> texts;
    for (const std::string& given : options.modules) {
        auto installed = install(base, given, settings);
        if (!installed) return installed.error();
        if (installed->text && installed->module.applied.weight != 0)
            texts.push_back({given, std::move(installed->text)});
        modules.push_back(std::move(installed->module));
    }
    auto text = prompt_text(texts, !options.raw);
    if (!text) return text.error();
    if (!text->tokenizer) text->tokenizer = base.tokenizer;
    if (!text->chat_template) text->chat_template = base.chat_template;
    auto prompt = encode(options, text->tokenizer.get(), text->chat_template.get());
    if (!prompt) return prompt.error();
    const int context = settings.model.max_context > 0 ? settings.model.max_context : base.engine->shape().max_context;
    const int room = context - static_cast<int>(prompt->size());
    if (prompt->empty()) return make_error(Errc::invalid_argument, "the prompt is empty");
    if (room < 1) {
        return make_error(Errc::context_exceeded, "the prompt has " + std::to_string(prompt->size()) +
                                                      " tokens, the model's context is " + std::to_string(context));
    }
    auto job = std::make_unique<Job>();
    job->id = RequestId{1};
    job->prompt = std::move(*prompt);
    job->sampling = options.sampling;
    job->sampling.max_tokens = std::min(options.max_tokens, room);
    job->to_context_end = true;  // it is the longest answer, not a promise
    job->sampling.ignore_eos = options.ignore_eos;
    job->sampling.seed = options.seed ? *options.seed : std::random_device{}();
    job->route.rule = options.modules.empty() ? "default" : "explicit";
    job->received = steady_now();
    job->sink = std::move(sink);
    for (const JobModule& module : modules) job->route.modules.push_back(module.applied.id.name);
    job->modules = std::move(modules);
    return job;
}

void print_stats(const Finished& finished, double total_ms) {
    const int tokens = finished.usage.completion_tokens;
    const double after_first_ms = total_ms - finished.ttft_ms;
    std::fprintf(stderr, "%d prompt tokens, first token after %.0f ms, %d tokens", finished.usage.prompt_tokens,
                 finished.ttft_ms, tokens);
    if (tokens > 1) std::fprintf(stderr, ", then %.1f tokens/s", (tokens - 1) * 1000.0 / after_first_ms);
    std::fprintf(stderr, "\n");
}

int generate(GenerateOptions options) {
    if (options.prompt.empty()) {
        if (isatty(STDIN_FILENO) != 0) std::cerr << "prompt (end with Ctrl-D):\n";
        options.prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
    }
    auto settings = options.settings.read();
    if (!settings) return report("generate", settings.error());
    if (auto checked = check_model_path(settings->model.path); !checked) return report("generate", checked.error());
    set_log(std::max(settings->log.level, isatty(STDERR_FILENO) != 0 ? LogLevel::info : LogLevel::warn),
            settings->log.format);
    // One prompt needs one sequence's memory.
    settings->scheduler.max_sequences = 1;
    auto base = open_base(*settings);
    if (!base) return report("generate", base.error());
    const auto sink = std::make_shared<TerminalSink>();
    auto job = make_job(*base, options, *settings, sink);
    if (!job) return report("generate", job.error());

    const TimePoint begin = steady_now();
    base->engine->add(std::move(*job));
    // A closed pipe ends the work; nobody reads on.
    while (!sink->has_ended() && std::cout && base->engine->has_work()) base->engine->step();
    if (!std::cout) return kFailed;
    if (sink->error()) return report("generate", *sink->error());
    if (!sink->finished()) return report("generate", make_error(Errc::internal, "the engine stopped early"));
    if (options.stats) print_stats(*sink->finished(), milliseconds_between(begin, steady_now()));
    return kDone;
}

}  // namespace

void add_generate(CLI::App& app, Run& run) {
    CLI::App* command = app.add_subcommand("generate", "Answer one prompt without a server");
    auto options = std::make_shared<GenerateOptions>();
    options->sampling.temperature = 0;
    options->settings.add_model(*command);
    command->add_option("prompt,--prompt", options->prompt, "The prompt; read from standard input when absent")
        ->type_name("TEXT");
    command->add_option("--system", options->system, "System message of the chat")->type_name("TEXT");
    command->add_flag("--raw", options->raw, "The prompt is the model's raw language, not a chat message");
    command
        ->add_option("--module", options->modules,
                     "Module folder or file to put on the base, or PATH=WEIGHT (repeatable)")
        ->type_name("PATH")
        ->expected(1)
        ->allow_extra_args(false)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    command->add_option("--max-tokens", options->max_tokens, "Longest answer (default 256)")
        ->type_name("N")
        ->check(CLI::Range(1, 1 << 24));
    command->add_option("--temperature", options->sampling.temperature, "0 (default) takes the likeliest token")
        ->type_name("T")
        ->check(CLI::Range(0.0, 100.0));
    command->add_option("--top-p", options->sampling.top_p, "Share of likely tokens drawn from (default 1)")
        ->type_name("P")
        ->check(CLI::Range(1e-6, 1.0));
    command->add_option("--top-k", options->sampling.top_k, "Number of likely tokens drawn from (0: all)")
        ->type_name("K")
        ->check(CLI::Range(0, 1 << 24));
    command->add_option("--seed", options->seed, "Makes a draw repeatable")->type_name("N");
    command->add_option("--stop", options->sampling.stop, "Text that ends the answer (repeatable)")
        ->type_name("TEXT")
        ->expected(1)
        ->allow_extra_args(false)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    command->add_flag("--ignore-eos", options->ignore_eos, "Go on to --max-tokens");
    command->add_flag("--stats", options->stats, "Print counts and speed to standard error");
    options->settings.add_files(*command);
    command->callback([&run, options] { run = [options] { return generate(*options); }; });
}

}  // namespace attune::cli
