#include "actors/metrics.hpp"

#include "engine/kv/block_size.hpp"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <set>

namespace attune {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Labels;

using Buckets = Histogram::BucketBoundaries;

// vLLM's own boundaries, so that existing dashboards read alike.
const Buckets kFirstToken{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,   0.75,
                          1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0};
const Buckets kPerToken{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,  0.3,  0.4, 0.5,
                        0.75, 1.0,   2.5,  5.0,   7.5, 10.0, 20.0, 40.0, 80.0};
const Buckets kRequest{0.3,  0.5,  0.8,  1.0,  1.5,   2.0,   2.5,   5.0,   10.0,   15.0,  20.0,
                       30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};
const Buckets kCounts{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000};
const Buckets kIteration{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
constexpr std::size_t kReloadedNames = 20000;
const Buckets kFewChoices{1, 2, 5, 10, 20};
const Buckets kLoad{0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0};

std::string joined(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ",") + name;
    return text;
}

double unix_seconds() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

struct Metrics::State {
    explicit State(const ServerInfo& info)
        : registry(std::make_shared<prometheus::Registry>()), model{{"model_name", info.base_id}, {"engine", "0"}} {}

    Family<Counter>& counters(const std::string& name, const std::string& help) {
        return prometheus::BuildCounter().Name(name).Help(help).Register(*registry);
    }
    Family<Gauge>& gauges(const std::string& name, const std::string& help) {
        return prometheus::BuildGauge().Name(name).Help(help).Register(*registry);
    }
    Counter& counter(const std::string& name, const std::string& help) { return counters(name, help).Add(model); }
    Gauge& gauge(const std::string& name, const std::string& help) { return gauges(name, help).Add(model); }
    Histogram& histogram(const std::string& name, const std::string& help, const Buckets& buckets) {
        return prometheus::BuildHistogram().Name(name).Help(help).Register(*registry).Add(model, buckets);
    }
    Labels with(const std::string& label, const std::string& value) const {
        Labels labels = model;
        labels[label] = value;
        return labels;
    }

    std::shared_ptr<prometheus::Registry> registry;
    Labels model;

    Gauge& running = gauge("vllm:num_requests_running", "Requests in the engine's batch.");
    Gauge& waiting = gauge("vllm:num_requests_waiting", "Requests admitted but not in the batch yet.");
    Gauge& kv_usage = gauge("vllm:kv_cache_usage_perc", "KV blocks in use, 0 to 1.");
    Counter& prompt_tokens = counter("vllm:prompt_tokens_total", "Prompt tokens computed.");
    Counter& generation_tokens = counter("vllm:generation_tokens_total", "Tokens generated.");
    Counter& held_steps = counter("attune_steps_held_total",
                                  "Steps that read less of prompts than they could, for scheduler.slo_itl_ms.");
    Counter& preemptions = counter("vllm:num_preemptions_total", "Sequences put back to free KV blocks.");
    Counter& prefix_queries =
        counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.");
    Counter& prefix_hits = counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.");
    Family<Counter>& success = counters("vllm:request_success_total", "Requests that ended, by reason.");
    Histogram& first_token =
        histogram("vllm:time_to_first_token_seconds", "From the request's last byte to its first token.", kFirstToken);
    Histogram& per_token =
        histogram("vllm:time_per_output_token_seconds", "Between two tokens of one choice.", kPerToken);
    Histogram& inter_token =
        histogram("vllm:inter_token_latency_seconds", "Between two tokens of one choice.", kPerToken);
    Histogram& end_to_end = histogram("vllm:e2e_request_latency_seconds", "From the last byte to the end.", kRequest);
    Histogram& queue_time = histogram("vllm:request_queue_time_seconds", "Before the first step.", kRequest);
    Histogram& inference_time = histogram("vllm:request_inference_time_seconds", "In the engine.", kRequest);
    Histogram& prefill_time = histogram("vllm:request_prefill_time_seconds", "First step to first token.", kRequest);
    Histogram& decode_time = histogram("vllm:request_decode_time_seconds", "First token to the end.", kRequest);
    Histogram& request_prompt = histogram("vllm:request_prompt_tokens", "Prompt tokens of a request.", kCounts);
    Histogram& request_generation =
        histogram("vllm:request_generation_tokens", "Generated tokens of a request.", kCounts);
    Histogram& params_n = histogram("vllm:request_params_n", "n of a request.", kFewChoices);
    Histogram& params_max_tokens = histogram("vllm:request_params_max_tokens", "max_tokens of a request.", kCounts);
    Histogram& iteration_tokens = histogram("vllm:iteration_tokens_total", "Rows of one step.", kIteration);
    Family<Gauge>& cache_config = gauges("vllm:cache_config_info", "The KV cache's shape.");
    Family<Gauge>& lora_requests = gauges("vllm:lora_requests_info", "Modules with requests in flight.");
    Family<Gauge>& lora_loaded = gauges("vllm:lora_adapter_loaded", "1 for each module in memory.");
    Gauge& gpu_loaded = gauge("vllm:num_gpu_loaded_lora_adapters", "Modules in slots.");
    Gauge& cpu_loaded = gauge("vllm:num_cpu_loaded_lora_adapters", "Modules in host memory.");
    Family<Gauge>& max_gpu = gauges("vllm:max_gpu_lora_adapters", "No fixed number: slots are budgeted in bytes.");
    Histogram& load_seconds = histogram("vllm:lora_adapter_load_seconds", "Reading and checking a module.", kLoad);

    Gauge& cached_blocks = gauge("attune_prefix_cache_blocks", "KV blocks in the prefix cache, in use or not.");
    Family<Gauge>& tiers = gauges("attune_modules", "Names by tier.");
    Gauge& pinned = gauge("attune_modules_pinned", "Pinned names.");
    Gauge& refused = gauge("attune_modules_refused", "Things under the roots that got no name.");
    Gauge& leases = gauge("attune_module_leases", "Requests that hold a module.");
    Gauge& generations = gauge("attune_resident_generations", "Different contents in slots.");
    Gauge& retired = gauge("attune_retired_generations", "Contents without a name, held by leases only.");
    Family<Gauge>& bytes = gauges("attune_module_bytes", "Module memory: used and capacity, host and device.");
    Family<Counter>& loads = counters("attune_module_loads_total", "Loads by outcome.");
    Family<Counter>& reloads = counters("attune_module_reloads_total", "Loads of a module that was in memory before.");
    Family<Counter>& evictions = counters("attune_module_evictions_total", "Evictions by the tier that was left.");
    Family<Counter>& decisions =
        counters("attune_trigger_decisions_total", "What the trigger wanted done with modules, and why.");
    Counter& swaps = counter("attune_module_swaps_total", "Names moved to another generation.");
    Family<Counter>& rejections = counters("attune_requests_rejected_total", "Requests refused, by reason.");
    Counter& failures = counter("attune_requests_failed_total", "Requests the engine refused or could not finish.");
    Family<Counter>& cold_words = counters("attune_requests_cold_total", "Admitted requests by attune-cold.");
    Family<Counter>& routes =
        counters("attune_routes_loaded_total", "Routing rules that were put in force, by source.");
    Family<Counter>& routes_refused =
        counters("attune_routes_refused_total", "Routing rules that were refused, by source.");
    Gauge& routes_ok = gauge("attune_routes_ok", "1 while the routes file, as last read, was a good one.");
    Family<Counter>& choices = counters("attune_routes_choices_total", "Requests to auto, by kind of rule.");
    Counter& patterns = counter("attune_routes_pattern_limit_total",
                                "Searches for a rule's pattern that were given up at their limit.");
    Counter& audit_runs = counter("attune_audit_passes_total", "Full passes over the resident base.");
    Counter& alarms = counter("attune_audit_alarms_total", "Damage found in the resident base.");
    Counter& repairs = counter("attune_audit_repairs_total", "Alarms after which the base was restored.");
    Gauge& base_ok = gauge("attune_base_ok", "1 while no damage is known.");
    Family<Counter>& apply_tokens = counters("attune_tokens_total", "Tokens by how modules were put on the base.");
    Counter& merges = counter("attune_merges_total", "Sets of modules put into the base's weights.");
    Counter& restores = counter("attune_restores_total", "Sets of modules taken out again.");
    Counter& switch_seconds = counter("attune_merge_seconds_total", "Time spent merging and restoring.");
    Gauge& base_merged = gauge("attune_base_merged", "1 while modules lie in the base's weights.");
    Counter& failed_steps = counter("attune_engine_faults_total", "Steps that ended in an unforeseen fault.");
    Gauge& weight_bytes = gauge("attune_weight_bytes", "The resident base.");
    Family<Counter>& restarts = counters("attune_actor_restarts_total", "Actors started again.");

    std::string max_lora;  // slots are budgeted in bytes, so as many different modules as requests can run
    std::atomic<int> engine_waiting{0};
    std::mutex changing;  // guards the series below, which come and go
    std::set<std::string> reloaded;
    std::map<std::string, Gauge*> loaded_series;
    Gauge* lora_series = nullptr;
    std::string lora_labels;
};

Metrics::Metrics(const ServerInfo& info, const Settings& settings, const EngineStats& stats)
    : state_(std::make_unique<State>(info)) {
    state_->max_lora = std::to_string(settings.scheduler.max_sequences);
    Labels shape = state_->with("block_size", std::to_string(kBlockTokens));
    shape["num_gpu_blocks"] = std::to_string(stats.total_blocks);
    state_->cache_config.Add(shape).Set(1);
    state_->max_gpu.Add(state_->with("unit", "bytes")).Set(static_cast<double>(settings.modules.device_bytes));
    state_->base_ok.Set(1);
    state_->routes_ok.Set(1);
    for (const char* source : {"file", "request"}) {
        state_->routes.Add(state_->with("source", source));
        state_->routes_refused.Add(state_->with("source", source));
    }
    state_->weight_bytes.Set(static_cast<double>(stats.weight_bytes));
    for (const char* reason : {"stop", "length", "abort"}) state_->success.Add(state_->with("finished_reason", reason));
    tiers({});
    requests({}, {}, 0);
}

Metrics::~Metrics() = default;

void Metrics::step(const StepReport& report, const EngineStats& stats) {
    state_->running.Set(stats.running);
    state_->engine_waiting = stats.waiting;
    if (stats.total_blocks > 0) state_->kv_usage.Set(1.0 - static_cast<double>(stats.free_blocks) / stats.total_blocks);
    if (report.prompt_rows > 0) state_->prompt_tokens.Increment(report.prompt_rows);
    if (report.generated > 0) state_->generation_tokens.Increment(report.generated);
    if (report.generated > 0)
        state_->apply_tokens.Add(state_->with("apply", report.apply == ApplyMode::merged ? "merged" : "batched"))
            .Increment(report.generated);
    state_->merges.Increment(report.merges);
    state_->restores.Increment(report.restores);
    state_->switch_seconds.Increment(report.switch_seconds);
    state_->base_merged.Set(stats.merged ? 1 : 0);
    if (report.prompts_held) state_->held_steps.Increment();
    if (report.preempted > 0) state_->preemptions.Increment(report.preempted);
    if (report.prefix_queries > 0) state_->prefix_queries.Increment(report.prefix_queries);
    if (report.prefix_hits > 0) state_->prefix_hits.Increment(report.prefix_hits);
    state_->cached_blocks.Set(stats.cached_blocks);
    if (report.rows > 0) state_->iteration_tokens.Observe(report.rows);
    for (const double seconds : report.inter_token_seconds) {
        state_->per_token.Observe(seconds);
        state_->inter_token.Observe(seconds);
    }
}

void Metrics::ended(const EndedRequest& request) {
    if (request.outcome == "error") return state_->failures.Increment();
    const std::string reason = request.outcome == "cancelled" ? "abort" : request.outcome;
    state_->success.Add(state_->with("finished_reason", reason)).Increment();
    state_->end_to_end.Observe(request.e2e_ms / 1000);
    state_->queue_time.Observe(request.queue_ms / 1000);
    state_->request_prompt.Observe(request.usage.prompt_tokens);
    state_->request_generation.Observe(request.usage.completion_tokens);
    state_->inference_time.Observe((request.e2e_ms - request.queue_ms) / 1000);
    if (request.ttft_ms <= 0) return;
    state_->first_token.Observe(request.ttft_ms / 1000);
    state_->prefill_time.Observe((request.ttft_ms - request.queue_ms) / 1000);
    state_->decode_time.Observe((request.e2e_ms - request.ttft_ms) / 1000);
}

void Metrics::step_failed() { state_->failed_steps.Increment(); }

void Metrics::admitted(int n, int max_tokens, bool) {
    state_->params_n.Observe(n);
    state_->params_max_tokens.Observe(max_tokens);
}

void Metrics::rejected(const std::string& reason) {
    state_->rejections.Add(state_->with("reason", reason)).Increment();
}

void Metrics::cold(const std::string& word) { state_->cold_words.Add(state_->with("cold", word)).Increment(); }

void Metrics::routes(bool from_file, bool taken) {
    auto& family = taken ? state_->routes : state_->routes_refused;
    family.Add(state_->with("source", from_file ? "file" : "request")).Increment();
    if (from_file) state_->routes_ok.Set(taken);
}

void Metrics::routed(const std::string& rule, int patterns_over_limit) {
    state_->choices.Add(state_->with("rule", rule)).Increment();
    if (patterns_over_limit > 0) state_->patterns.Increment(patterns_over_limit);
}

void Metrics::requests(const std::vector<std::string>& running, const std::vector<std::string>& waiting, int queued) {
    state_->waiting.Set(queued + state_->engine_waiting);
    std::lock_guard lock(state_->changing);
    // The protocol's gauge carries its lists as labels: one series, replaced when a list changes.
    const std::string labels = joined(running) + "\n" + joined(waiting);
    if (!state_->lora_series || labels != state_->lora_labels) {
        if (state_->lora_series) state_->lora_requests.Remove(state_->lora_series);
        Labels series{{"max_lora", state_->max_lora}};
        series["running_lora_adapters"] = joined(running);
        series["waiting_lora_adapters"] = joined(waiting);
        state_->lora_series = &state_->lora_requests.Add(series);
        state_->lora_labels = labels;
    }
    state_->lora_series->Set(unix_seconds());
}

void Metrics::tiers(const Tiers& tiers) {
    const auto tier = [&](const char* name, int count) { state_->tiers.Add(state_->with("tier", name)).Set(count); };
    tier("cold", tiers.cold);
    tier("loading", tiers.loading);
    tier("host", tiers.host);
    tier("resident", tiers.resident);
    tier("failed", tiers.failed);
    state_->pinned.Set(tiers.pinned);
    state_->leases.Set(tiers.leases);
    state_->generations.Set(tiers.resident_generations);
    state_->retired.Set(tiers.retired_generations);
    state_->gpu_loaded.Set(tiers.resident);
    state_->cpu_loaded.Set(tiers.host);
    const auto bytes = [&](const char* where, const char* what, std::uint64_t value) {
        Labels labels = state_->with("where", where);
        labels["what"] = what;
        state_->bytes.Add(labels).Set(static_cast<double>(value));
    };
    bytes("host", "used", tiers.host_used);
    bytes("host", "capacity", tiers.host_capacity);
    bytes("device", "used", tiers.device_used);
    bytes("device", "capacity", tiers.device_capacity);

    std::lock_guard lock(state_->changing);
    std::map<std::string, Gauge*> present;
    for (const Loaded& module : tiers.loaded) {
        const std::string level = module.resident ? "gpu" : "cpu";
        const std::string pinned = module.pinned ? "true" : "false";
        Labels labels = state_->with("adapter_name", module.name);
        labels["level"] = level;
        labels["pinned"] = pinned;
        Gauge& gauge = state_->lora_loaded.Add(labels);
        gauge.Set(1);
        present[module.name + "\n" + level + "\n" + pinned] = &gauge;
    }
    for (const auto& [key, gauge] : state_->loaded_series)
        if (!present.contains(key)) state_->lora_loaded.Remove(gauge);
    state_->loaded_series = std::move(present);
}

void Metrics::loaded(const std::string& outcome, double seconds) {
    state_->loads.Add(state_->with("outcome", outcome)).Increment();
    state_->load_seconds.Observe(seconds);
}

void Metrics::reloaded(const std::string& module) {
    // A series stays for ever, and names may come and go over HTTP.
    std::scoped_lock lock(state_->changing);
    if (state_->reloaded.size() < kReloadedNames) state_->reloaded.insert(module);
    state_->reloads.Add(state_->with("module", state_->reloaded.contains(module) ? module : "(others)")).Increment();
}
void Metrics::evicted(const std::string& from) { state_->evictions.Add(state_->with("from", from)).Increment(); }
void Metrics::decided(const std::string& what, const std::string& reason) {
    state_->decisions.Add({{"decision", what}, {"reason", reason}}).Increment();
}
void Metrics::swapped() { state_->swaps.Increment(); }
void Metrics::refused(int modules) { state_->refused.Set(modules); }

void Metrics::audit_pass(bool clean) {
    state_->audit_runs.Increment();
    if (!clean) state_->base_ok.Set(0);
}

void Metrics::alarm() {
    state_->alarms.Increment();
    state_->base_ok.Set(0);
}

void Metrics::repaired() {
    state_->repairs.Increment();
    state_->base_ok.Set(1);
}

void Metrics::restarted(const std::string& actor) { state_->restarts.Add(state_->with("actor", actor)).Increment(); }

std::string Metrics::text() const { return prometheus::TextSerializer().Serialize(state_->registry->Collect()); }

}  // namespace attune
