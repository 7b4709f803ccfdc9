#include "house_fixture.hpp"

#include <catch2/catch.hpp>

using namespace attune;

TEST_CASE_METHOD(HouseFixture, "every name of the gateway protocol is exported from the start", "[actors][metrics]") {
    start();
    const std::string text = metrics();
    for (const char* name : {"vllm:num_requests_running",
                             "vllm:num_requests_waiting",
                             "vllm:kv_cache_usage_perc",
                             "vllm:prompt_tokens_total",
                             "vllm:generation_tokens_total",
                             "vllm:num_preemptions_total",
                             "vllm:request_success_total",
                             "vllm:time_to_first_token_seconds",
                             "vllm:time_per_output_token_seconds",
                             "vllm:e2e_request_latency_seconds",
                             "vllm:request_queue_time_seconds",
                             "vllm:iteration_tokens_total",
                             "vllm:request_inference_time_seconds",
                             "vllm:request_prefill_time_seconds",
                             "vllm:request_decode_time_seconds",
                             "vllm:request_params_n",
                             "vllm:request_params_max_tokens",
                             "vllm:prefix_cache_queries_total",
                             "vllm:prefix_cache_hits_total",
                             "vllm:lora_requests_info",
                             "vllm:num_gpu_loaded_lora_adapters",
                             "vllm:num_cpu_loaded_lora_adapters",
                             "vllm:lora_adapter_load_seconds"})
        CHECK(text.find(std::string("# TYPE ") + name + " ") != std::string::npos);
    CHECK(text.find(
              "vllm:cache_config_info{block_size=\"16\",engine=\"0\",model_name=\"base\",num_gpu_blocks=\"256\"} 1") !=
          std::string::npos);
}

TEST_CASE_METHOD(HouseFixture, "histograms count requests once and refused requests not at all", "[actors][metrics]") {
    start();
    ask("base", 3);
    ask("base", 3);
    ask("nobody");
    const std::string text = metrics();
    const std::string labels = "{engine=\"0\",model_name=\"base\"} ";
    CHECK(text.find("vllm:e2e_request_latency_seconds_count" + labels + "2\n") != std::string::npos);
    CHECK(text.find("vllm:time_to_first_token_seconds_count" + labels + "2\n") != std::string::npos);
    CHECK(text.find("vllm:request_params_n_count" + labels + "2\n") != std::string::npos);
    CHECK(text.find("vllm:generation_tokens_total" + labels + "6\n") != std::string::npos);
    CHECK(text.find("vllm:request_success_total{engine=\"0\",finished_reason=\"length\",model_name=\"base\"} 2\n") !=
          std::string::npos);
    CHECK(text.find("vllm:num_requests_running" + labels + "0\n") != std::string::npos);
}

TEST_CASE("series of modules that left are taken away", "[actors][metrics]") {
    ServerInfo info;
    info.base_id = "base";
    Metrics metrics(info, Settings{}, EngineStats{});
    Metrics::Tiers tiers;
    tiers.loaded = {{"a", true, false}, {"b", false, true}};
    metrics.tiers(tiers);
    std::string text = metrics.text();
    CHECK(text.find("adapter_name=\"a\",engine=\"0\",level=\"gpu\",model_name=\"base\",pinned=\"false\"") !=
          std::string::npos);
    CHECK(text.find("adapter_name=\"b\",engine=\"0\",level=\"cpu\",model_name=\"base\",pinned=\"true\"") !=
          std::string::npos);
    tiers.loaded = {{"a", false, false}};
    metrics.tiers(tiers);
    text = metrics.text();
    CHECK(text.find("adapter_name=\"b\"") == std::string::npos);
    CHECK(text.find("level=\"gpu\"") == std::string::npos);
    CHECK(text.find("level=\"cpu\"") != std::string::npos);
}
