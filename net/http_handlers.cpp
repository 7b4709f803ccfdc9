#include "net/http_session.hpp"

#include "net/decode_admin.hpp"
#include "net/decode_request.hpp"
#include "net/encode_info.hpp"
#include "net/encode_routing.hpp"
#include "net/json_text.hpp"

#include <boost/json/object.hpp>

namespace attune {
namespace {

// vLLM's name for faults of its adapter routes.
constexpr std::string_view kInvalidUserInput = "InvalidUserInput";

Error name_model(Error error) {
    if (error.code == Errc::unknown_model && error.param.empty()) error.param = "model";
    return error;
}

template <class T, class Encode>
Response encode_or_error(const Result<T>& result, Encode&& encode) {
    return result ? json_response(encode(*result)) : error_response(name_model(result.error()));
}

}  // namespace

asio::awaitable<bool> HttpSession::dispatch(RequestContext& context, std::string& body) {
    const RouteId id = context.route.id;
    if (id == RouteId::completions || id == RouteId::chat) co_return co_await generate(context, body);
    const Response response = co_await handle(context, body);
    co_return co_await answer(context, response);
}

asio::awaitable<Response> HttpSession::handle(RequestContext& context, std::string& body) {
    switch (context.route.id) {
        case RouteId::health:
            co_return json_response(R"({"status":"ok"})");
        case RouteId::ready:
            co_return readiness();
        case RouteId::metrics:
            co_return co_await metrics();
        case RouteId::models:
        case RouteId::model:
        case RouteId::modules:
            co_return co_await list_models(context);
        case RouteId::load_adapter:
            co_return co_await load_adapter(context, body);
        case RouteId::unload_adapter:
            co_return co_await unload_adapter(context, body);
        case RouteId::module_order:
            co_return co_await order_module(context, body);
        case RouteId::routing:
            co_return co_await routing(context);
        case RouteId::put_routing:
            co_return co_await put_routing(context, body);
        case RouteId::try_routing:
            co_return co_await try_routing(context, body);
        case RouteId::audit:
            co_return co_await audit(false);
        case RouteId::audit_run:
            co_return co_await audit(true);
        case RouteId::tokenize:
            co_return co_await tokenize(context, body);
        case RouteId::detokenize:
            co_return co_await detokenize(context, body);
        case RouteId::completions:
        case RouteId::chat:
        case RouteId::websocket:
            break;  // answered by their own coroutines
    }
    co_return error_response(make_error(Errc::internal, "This route has no handler."));
}

Response HttpSession::readiness() const {
    std::string why;
    if (server_.gateway.ready(&why)) return json_response(R"({"ready":true})");
    std::string body = R"({"ready":false,"reason":)";
    append_json_string(body, why);
    Response response = json_response(body + '}', 503);
    response.headers.emplace_back("Retry-After", "1");
    return response;
}

asio::awaitable<Response> HttpSession::metrics() {
    const Ask<std::string> call = [this](Reply<std::string> reply) { server_.gateway.metrics(std::move(reply)); };
    const auto text = co_await ask(call);
    if (!text) co_return error_response(text.error());
    Response response = text_response(*text);
    response.content_type = "text/plain; version=0.0.4; charset=utf-8";
    co_return response;
}

asio::awaitable<Response> HttpSession::list_models(RequestContext& context) {
    using List = std::vector<ModuleStatus>;
    const Ask<List> call = [&](Reply<List> reply) { server_.gateway.modules(context.caller, std::move(reply)); };
    const auto modules = co_await ask(call);
    if (!modules) co_return error_response(modules.error());
    if (context.route.id == RouteId::modules) co_return json_response(modules_body(*modules));
    const ServerInfo& info = server_.gateway.info();
    if (context.route.id == RouteId::models) co_return json_response(models_body(info, *modules));
    const std::string card = model_card(info, *modules, context.route.name);
    if (!card.empty()) co_return json_response(card);
    co_return error_response(
        make_error(Errc::unknown_model, "The model `" + context.route.name + "` does not exist.", "model"));
}

asio::awaitable<Response> HttpSession::load_adapter(RequestContext& context, std::string& body) {
    // The faults of its fields have a type of their own, those of its JSON do not.
    const Decode<Result<LoadModuleRequest>> decode = decode_load_adapter;
    auto read = co_await read_as(body, false, decode);
    if (!read) co_return error_response(read.error());
    auto& request = *read;
    if (!request) co_return error_response(request.error(), kInvalidUserInput);
    request->caller = context.caller;
    const Ask<ModuleStatus> call = [&](Reply<ModuleStatus> reply) {
        server_.gateway.load_module(*request, std::move(reply));
    };
    const auto status = co_await ask(call);
    if (status) co_return text_response("Success: LoRA adapter '" + request->name + "' added successfully.");
    const bool is_taken = status.error().code == Errc::already_exists;
    co_return error_response(status.error(), is_taken ? kInvalidUserInput : std::string_view{});
}

asio::awaitable<Response> HttpSession::unload_adapter(RequestContext& context, std::string& body) {
    const Decode<Result<std::string>> decode = decode_unload_adapter;
    const auto read = co_await read_as(body, false, decode);
    if (!read) co_return error_response(read.error());
    const auto& name = *read;
    if (!name) co_return error_response(name.error(), kInvalidUserInput);
    const Ask<ModuleStatus> call = [&](Reply<ModuleStatus> reply) {
        server_.gateway.remove_module(*name, context.caller, std::move(reply));
    };
    auto status = co_await ask(call);
    if (status) co_return text_response("Success: LoRA adapter '" + *name + "' removed successfully.");
    if (status.error().code == Errc::unknown_model)
        status.error().message = "The lora adapter '" + *name + "' cannot be found.";
    co_return error_response(status.error());
}

asio::awaitable<Response> HttpSession::order_module(RequestContext& context, std::string& body) {
    const Decode<bool> decode = [](const boost::json::object&) { return true; };  // an order has no fields
    const auto is_object = co_await read_as(body, true, decode);
    if (!is_object) co_return error_response(is_object.error());
    const Ask<ModuleStatus> call = [&](Reply<ModuleStatus> reply) {
        server_.gateway.order_module(context.route.name, context.route.order, context.caller, std::move(reply));
    };
    const auto status = co_await ask(call);
    if (!status) co_return error_response(name_model(status.error()));
    const bool is_under_way = status->tier == Tier::loading;
    co_return json_response(module_object(*status), is_under_way ? 202 : 200);
}

asio::awaitable<Response> HttpSession::routing(RequestContext& context) {
    const Ask<RoutesStatus> call = [&](Reply<RoutesStatus> reply) {
        server_.gateway.routes(context.caller, std::move(reply));
    };
    const auto status = co_await ask(call);
    co_return encode_or_error(status, routing_body);
}

asio::awaitable<Response> HttpSession::put_routing(RequestContext& context, std::string& body) {
    // Checked as JSON here, where depth and letters have their limits, and as rules in the house.
    const Decode<std::string> decode = [](const boost::json::object& object) { return to_json(object); };
    const auto rules = co_await read_as(body, false, decode);
    if (!rules) co_return error_response(rules.error());
    const Ask<RoutesStatus> call = [&](Reply<RoutesStatus> reply) {
        server_.gateway.put_routes(*rules, context.caller, std::move(reply));
    };
    const auto status = co_await ask(call);
    co_return encode_or_error(status, routing_body);
}

asio::awaitable<Response> HttpSession::try_routing(RequestContext& context, std::string& body) {
    const Decode<GenerationRequest> decode = [this](const boost::json::object& object) {
        return decode_route_trial(object, decode_context());
    };
    auto request = co_await read_as(body, false, decode);
    if (!request) co_return error_response(request.error());
    request->caller = context.caller;
    const Ask<RouteTrial> call = [&](Reply<RouteTrial> reply) {
        server_.gateway.try_route(std::move(*request), std::move(reply));
    };
    const auto trial = co_await ask(call);
    co_return encode_or_error(trial, route_trial_body);
}

asio::awaitable<Response> HttpSession::audit(bool run) {
    const Ask<AuditStatus> call = [&](Reply<AuditStatus> reply) { server_.gateway.audit(run, std::move(reply)); };
    const auto status = co_await ask(call);
    co_return encode_or_error(status, audit_body);
}

asio::awaitable<Response> HttpSession::tokenize(RequestContext& context, std::string& body) {
    const Decode<TokenizeRequest> decode = [this](const boost::json::object& object) {
        return decode_tokenize(object, decode_context());
    };
    auto request = co_await read_as(body, false, decode);
    if (!request) co_return error_response(request.error());
    request->caller = context.caller;
    const Ask<TokenizeResult> call = [&](Reply<TokenizeResult> reply) {
        server_.gateway.tokenize(*request, std::move(reply));
    };
    const auto result = co_await ask(call);
    co_return encode_or_error(result, tokenize_body);
}

asio::awaitable<Response> HttpSession::detokenize(RequestContext& context, std::string& body) {
    const Decode<DetokenizeBody> decode = [this](const boost::json::object& object) {
        return decode_detokenize(object, decode_context());
    };
    const auto request = co_await read_as(body, false, decode);
    if (!request) co_return error_response(request.error());
    const Ask<std::string> call = [&](Reply<std::string> reply) {
        server_.gateway.detokenize(request->model, request->tokens, context.caller, std::move(reply));
    };
    const auto text = co_await ask(call);
    co_return encode_or_error(text, detokenize_body);
}

}  // namespace attune
