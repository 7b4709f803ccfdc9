#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace attune::load {

/// What one run of the load client does. Every request is a streamed, greedy /v1/completions with random token ids.
struct Options {
    std::string host = "127.0.0.1";
    std::string port;
    std::string model;                 ///< the base's id; empty: the first of /v1/models
    std::vector<std::string> modules;  ///< asked in turn, or by Zipf; empty: the base alone
    int streams = 1;                   ///< closed loop: as many requests are always in flight
    double rate = 0;                   ///< Poisson arrivals per second instead of the closed loop; 0 = closed loop
    int requests = 0;                  ///< 0: two for each stream
    double zipf = 0;                   ///< exponent over `modules` in their order; 0 = in turn
    int prompt_tokens = 109;
    int shared_tokens = 0;  ///< the same ids at the head of every prompt (for prefix caches)
    int max_tokens = 64;
    int vocab = 49000;      ///< prompt ids are drawn below it
    bool lora_ids = false;  ///< modules are llama.cpp's adapter numbers, named in `lora` instead of `model`
    std::string cold;       ///< cold policy of each request; empty: the server's
    double slo_ttft_ms = 1000;
    double slo_itl_ms = 100;
    double timeout_s = 300;  ///< of one request
    std::uint64_t seed = 1;
};

/// Reads the command line; prints help or the fault and ends the process where CLI11 says so.
Options parse_options(int argc, char** argv);

}  // namespace attune::load
