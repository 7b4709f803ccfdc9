#include "bench/load/options.hpp"

#include <CLI/CLI.hpp>
#include <cstdlib>

namespace attune::load {

namespace {

// "http://HOST:PORT[/]" into its two parts; only what `attune serve` prints is accepted.
bool split_url(const std::string& url, Options& options) {
    const std::string scheme = "http://";
    if (url.rfind(scheme, 0) != 0) return false;
    std::string rest = url.substr(scheme.size());
    if (!rest.empty() && rest.back() == '/') rest.pop_back();
    const auto colon = rest.rfind(':');
    if (colon == std::string::npos || colon == 0 || colon + 1 == rest.size()) return false;
    options.host = rest.substr(0, colon);
    options.port = rest.substr(colon + 1);
    return true;
}

}  // namespace

Options parse_options(int argc, char** argv) {
    Options options;
    std::string url;
    CLI::App app{"Streams completions from a server and prints one JSON line of what clients felt"};
    app.add_option("--url", url, "http://HOST:PORT")->required();
    app.add_option("--model", options.model, "base model id; default: the first of /v1/models");
    app.add_option("--modules", options.modules, "module names a,b,c; default: the base alone")->delimiter(',');
    app.add_option("--streams", options.streams, "requests in flight (closed loop)")->check(CLI::Range(1, 4096));
    app.add_option("--rate", options.rate, "Poisson arrivals per second instead")->check(CLI::NonNegativeNumber);
    app.add_option("--requests", options.requests, "how many in all; default: two per stream")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--zipf", options.zipf, "exponent over the modules; 0 = in turn")->check(CLI::NonNegativeNumber);
    app.add_option("--prompt-tokens", options.prompt_tokens, "tokens in a prompt")->check(CLI::PositiveNumber);
    app.add_option("--shared-tokens", options.shared_tokens, "of which equal in all prompts")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--max-tokens", options.max_tokens, "tokens to generate")->check(CLI::PositiveNumber);
    app.add_option("--vocab", options.vocab, "prompt ids are drawn below it")->check(CLI::Range(8, 1 << 30));
    app.add_flag("--lora-ids", options.lora_ids, "modules are llama.cpp's adapter numbers");
    app.add_option("--cold", options.cold, "cold policy")
        ->check(CLI::IsMember({"", "wait", "fallback", "upgrade", "revise"}));
    app.add_option("--slo-ttft-ms", options.slo_ttft_ms, "goodput: first token within");
    app.add_option("--slo-itl-ms", options.slo_itl_ms, "goodput: mean gap between tokens within");
    app.add_option("--timeout", options.timeout_s, "seconds for one request")->check(CLI::PositiveNumber);
    app.add_option("--seed", options.seed, "of prompts, modules and arrivals");
    try {
        app.parse(argc, argv);
        if (!split_url(url, options)) throw CLI::ValidationError("--url", "expected http://HOST:PORT");
    } catch (const CLI::ParseError& error) {
        std::exit(app.exit(error));
    }
    if (options.requests == 0) options.requests = 2 * options.streams;
    return options;
}

}  // namespace attune::load
