#include "net/ws_message.hpp"

#include "net/decode_request.hpp"
#include "net/field_reader.hpp"
#include "net/json_text.hpp"

#include <boost/json/object.hpp>

namespace attune {
namespace {

constexpr std::size_t kIdBytes = 128;
constexpr std::size_t kUserBytes = 256;

Result<ApiRequest> decode_order(const boost::json::object& message, const DecodeContext& context) {
    FieldReader fields(message);
    const std::string endpoint = fields.string("endpoint", 64).value_or("");
    const bool is_chat = endpoint == "chat.completions";
    if (fields.ok() && !is_chat && endpoint != "completions")
        fields.fail("endpoint", "`endpoint` must be chat.completions or completions.");
    const auto* body = fields.object("body");
    if (fields.ok() && body == nullptr) fields.fail("body", "`body` is required.");
    if (!fields.ok()) return fields.error();
    return is_chat ? decode_chat(*body, context) : decode_completion(*body, context);
}

}  // namespace

WsMessage decode_ws_message(std::string_view text, const DecodeContext& context) {
    WsMessage message;
    const auto value = parse_json(text, context.limits.json_depth);
    const auto* object = value ? value->if_object() : nullptr;
    if (object == nullptr) {
        message.fault =
            value ? make_error(Errc::invalid_argument, "A message must be an object.") : Error(value.error());
        return message;
    }
    FieldReader fields(*object);
    const std::string type = fields.string("type", 32).value_or("");
    message.id = fields.string("id", kIdBytes).value_or("");
    if (type == "hello") {
        message.user = fields.string("user", kUserBytes).value_or("");
    } else if (type == "request" || type == "cancel") {
        message.kind = type == "request" ? WsMessage::Kind::request : WsMessage::Kind::cancel;
        if (fields.ok() && message.id.empty()) fields.fail("id", "`id` is required: a string.");
    } else {
        fields.fail("type", "`type` must be request, cancel or hello.");
    }
    if (!fields.ok())
        message.fault = fields.error();
    else if (message.kind == WsMessage::Kind::request)
        message.request = decode_order(*object, context);
    return message;
}

}  // namespace attune
