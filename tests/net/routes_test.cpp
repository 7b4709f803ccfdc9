#include "net/routes.hpp"

#include "net/errors.hpp"

#include <catch2/catch.hpp>

namespace attune {
namespace {

TEST_CASE("names in paths are percent-decoded, queries do not matter", "[net][routes]") {
    const auto pin = find_route("POST", "/v1/modules/%E6%B3%95%E6%9D%A1-v1.2/pin?x=1");
    REQUIRE(pin.match);
    CHECK(pin.match->id == RouteId::module_order);
    CHECK(pin.match->order == ModuleOrder::pin);
    CHECK(pin.match->name == "法条-v1.2");
    const auto slash = find_route("POST", "/v1/modules/a%2Fb/unload");
    REQUIRE(slash.match);
    CHECK(slash.match->name == "a/b");
    CHECK(slash.match->order == ModuleOrder::unload);
}

TEST_CASE("a wrong method gets the methods of its path, a wrong path nothing", "[net][routes]") {
    CHECK(find_route("GET", "/v1/completions").allow == "POST");
    CHECK(find_route("PUT", "/v1/audit").allow == "GET, POST");
    CHECK(find_route("HEAD", "/health").match);
    for (const char* method : {"GET", "POST"}) {
        const auto audit = find_route(method, "/v1/audit");
        CHECK(audit.match);
        CHECK(audit.allow.empty());
    }
    for (const auto* path : {"/", "/v1", "/v1/completions/", "/v1/modules/x", "/v1/modules/x/explode", "//health",
                             "/health/..", "/%68ealth/x", "http://evil/health", "*", "/v1/routes/"}) {
        const auto result = find_route("GET", path);
        CHECK_FALSE(result.match);
        CHECK(result.allow.empty());
    }
}

TEST_CASE("operators' routes need an admin, liveness needs nobody", "[net][routes]") {
    CHECK(find_route("GET", "/health").match->access == Access::open);
    CHECK(find_route("GET", "/ready").match->access == Access::open);
    CHECK(find_route("GET", "/metrics").match->access == Access::admin);
    CHECK(find_route("POST", "/v1/load_lora_adapter").match->access == Access::admin);
    CHECK(find_route("POST", "/v1/modules/x/load").match->access == Access::admin);
    CHECK(find_route("POST", "/v1/audit").match->access == Access::admin);
    CHECK(find_route("PUT", "/v1/routes").match->access == Access::admin);
    CHECK(find_route("PUT", "/v1/routes").match->has_body);
    CHECK(find_route("GET", "/v1/routes").match->access == Access::client);
    CHECK(find_route("POST", "/v1/routes/try").match->access == Access::client);
    CHECK(find_route("GET", "/v1/routes/try").allow == "POST");
    CHECK(find_route("POST", "/v1/routes").allow == "GET, PUT");
    CHECK(find_route("GET", "/v1/audit").match->access == Access::client);
    CHECK(find_route("POST", "/v1/chat/completions").match->access == Access::client);
}

TEST_CASE("every failure has its status and vLLM's type", "[net][errors]") {
    struct Row {
        Errc code;
        int status;
        const char* type;
    };
    const std::vector<Row> rows{{Errc::invalid_argument, 400, "BadRequestError"},
                                {Errc::context_exceeded, 400, "BadRequestError"},
                                {Errc::already_exists, 400, "BadRequestError"},
                                {Errc::unauthenticated, 401, "AuthenticationError"},
                                {Errc::forbidden, 403, "PermissionDeniedError"},
                                {Errc::not_found, 404, "NotFoundError"},
                                {Errc::unknown_model, 404, "NotFoundError"},
                                {Errc::method_not_allowed, 405, "BadRequestError"},
                                {Errc::conflict, 409, "ConflictError"},
                                {Errc::payload_too_large, 413, "BadRequestError"},
                                {Errc::unsupported_media, 415, "BadRequestError"},
                                {Errc::invalid_module, 422, "UnprocessableEntityError"},
                                {Errc::overloaded, 429, "RateLimitError"},
                                {Errc::unsupported, 501, "NotImplementedError"},
                                {Errc::unavailable, 503, "ServiceUnavailableError"},
                                {Errc::base_damaged, 503, "ServiceUnavailableError"},
                                {Errc::no_room, 503, "ServiceUnavailableError"},
                                {Errc::timeout, 504, "ServiceUnavailableError"},
                                {Errc::non_finite, 500, "InternalServerError"},
                                {Errc::io, 500, "InternalServerError"},
                                {Errc::internal, 500, "InternalServerError"}};
    for (const auto& row : rows) {
        CHECK(http_status(row.code) == row.status);
        CHECK(error_type(row.status) == row.type);
    }
    CHECK(error_body(make_error(Errc::unknown_model, "The model `x` does not exist.", "model")) ==
          R"({"error":{"message":"The model `x` does not exist.","type":"NotFoundError","param":"model","code":404}})");
    CHECK(error_object(make_error(Errc::internal, "oh \"no\"")) ==
          R"({"message":"oh \"no\"","type":"InternalServerError","param":null,"code":500})");
}

}  // namespace
}  // namespace attune
