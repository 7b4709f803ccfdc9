#pragma once

#include "attune/request.hpp"
#include "attune/result.hpp"
#include "attune/route_rule.hpp"
#include "attune/token_event.hpp"
#include "attune/token_sink.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace attune {

/// Called exactly once, on any thread, possibly before the call that took it returns.
template <class T>
using Reply = std::function<void(Result<T>)>;

enum class Tier : std::uint8_t { cold, loading, host, resident, failed };

/// What `GET /v1/modules` shows of one module.
struct ModuleStatus {
    std::string name;
    std::string kind;  ///< lora, state, package, composition
    Tier tier = Tier::cold;
    std::optional<std::string> generation;               ///< unknown until the first load
    std::uint64_t bytes = 0;                             ///< in its present tier; 0 while cold
    int rank = 0;                                        ///< largest over its layers
    std::vector<std::string> targets;                    ///< projections, e.g. q_proj
    std::vector<std::pair<int, double>> rank_and_scale;  ///< per layer: largest rank, scale of that pair
    std::string base_match;                              ///< shape, checkpoint, unverified, unknown
    double hits_per_minute = 0;
    bool pinned = false;
    int leases = 0;
    std::optional<std::string> last_error;
    std::string owner;                         ///< empty: everyone's
    std::int64_t created = 0;                  ///< Unix seconds when the name appeared
    std::vector<WeightedModule> members = {};  ///< of a composition; its tier is its coldest member's
    std::optional<Combine> combine = {};       ///< of a composition
};

struct LoadModuleRequest {
    std::string name;
    std::string path;  ///< below a module root; absolute or relative to one
    bool load_inplace = false;
    std::optional<std::string> expected_generation;
    Caller caller;
};

enum class ModuleOrder : std::uint8_t { load, unload, pin, unpin };

struct TokenizeRequest {
    std::string model;
    Prompt prompt;
    Caller caller;
    bool token_texts = false;  ///< the text of each token is wanted, too
};

struct TokenizeResult {
    std::vector<TokenId> tokens;
    int max_model_len = 0;
    /// One for each token: its bytes, perhaps a part of a character.
    std::optional<std::vector<std::string>> texts = std::nullopt;
};

struct AuditStatus {
    bool ok = true;
    std::string state;       ///< verified, assumed, alarm
    std::string checkpoint;  ///< sha256:...
    std::string expected;    ///< combined resident hash at start
    std::string measured;    ///< of the last full pass
    std::uint64_t runs = 0;
    std::uint64_t alarms = 0;
    std::vector<std::string> damaged;  ///< tensor names
};

/// The classifier in force, as `GET /v1/routes` shows it.
struct ClassifierStatus {
    std::string file;  ///< its name, without folder
    std::vector<std::string> labels;
    double threshold = 0;
    bool online = false;
    std::uint64_t updates = 0;  ///< steps learned since it was read
};

/// The rules in force, as far as the caller may see them.
struct RoutesStatus {
    RouteFile routes;
    std::vector<RouteRule> from_modules;  ///< of manifests that are trusted
    std::optional<ClassifierStatus> classifier;
    std::string source;                     ///< file, request, none
    std::string file;                       ///< its name, without folder; empty: none is watched
    std::int64_t since = 0;                 ///< Unix seconds: in force since then
    std::string last_error;                 ///< why the file on disk is not in force; empty: it is, or it never failed
    std::optional<std::int64_t> failed_at;  ///< Unix seconds, with `last_error`
};

/// What a request would get, without generating.
struct RouteTrial {
    RouteDecision decision;
    std::vector<WeightedModule> modules;  ///< empty: the base
    std::string why;                      ///< one sentence
};

struct ServerInfo {
    std::string base_id;
    int max_model_len = 0;
    int vocab_size = 0;
    std::int64_t created = 0;  ///< Unix seconds
    bool has_tokenizer = false;
    bool has_chat_template = false;
};

/// What net may ask of the house. Every call is non-blocking and may come from any thread.
class Gateway {
public:
    virtual ~Gateway() = default;

    virtual const ServerInfo& info() const = 0;
    /// True when requests are being accepted: started, not draining, no audit alarm. `why` says what is missing.
    virtual bool ready(std::string* why) const = 0;
    virtual RequestId next_id() = 0;

    /// Starts a request. The sink receives its events and lives until the last one.
    virtual void submit(GenerationRequest request, std::shared_ptr<TokenSink> sink) = 0;
    /// The client left: work stops within one step, in every state. Unknown ids are ignored.
    virtual void cancel(RequestId id) = 0;

    virtual void tokenize(TokenizeRequest request, Reply<TokenizeResult> reply) = 0;
    virtual void detokenize(std::string model, std::vector<TokenId> ids, Caller caller, Reply<std::string> reply) = 0;

    /// Only what the caller may see.
    virtual void modules(Caller caller, Reply<std::vector<ModuleStatus>> reply) = 0;
    virtual void load_module(LoadModuleRequest request, Reply<ModuleStatus> reply) = 0;
    /// Removes the name; running requests finish on what they leased.
    virtual void remove_module(std::string name, Caller caller, Reply<ModuleStatus> reply) = 0;
    virtual void order_module(std::string name, ModuleOrder order, Caller caller, Reply<ModuleStatus> reply) = 0;

    virtual void routes(Caller caller, Reply<RoutesStatus> reply) = 0;
    /// `json`: a routes file in JSON, checked whole before it replaces the rules; not written to disk. Where a file is
    /// watched, it comes back into force when it changes.
    virtual void put_routes(std::string json, Caller caller, Reply<RoutesStatus> reply) = 0;
    /// Which rule a request meets and which modules it would get.
    virtual void try_route(GenerationRequest request, Reply<RouteTrial> reply) = 0;
    /// A connection says whose it is: that user's modules are fetched as far as the caller may use them, and are not
    /// idle until as many leave() as greet() came.
    virtual void greet(std::string user, Caller caller) = 0;
    virtual void leave(std::string user, Caller caller) = 0;

    /// `run` true: a full pass first, the answer after it.
    virtual void audit(bool run, Reply<AuditStatus> reply) = 0;
    /// Prometheus text format.
    virtual void metrics(Reply<std::string> reply) = 0;
};

}  // namespace attune
