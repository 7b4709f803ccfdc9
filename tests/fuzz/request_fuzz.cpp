// A body as each endpoint would read it, and as a WebSocket message.
#include "fuzz/fuzz_input.hpp"
#include "net/decode_admin.hpp"
#include "net/decode_request.hpp"
#include "net/json_text.hpp"
#include "net/ws_message.hpp"

namespace attune::fuzz {
namespace {

const ServerInfo kInfo{"base", 2048, 1000, 0, true, true};
const LimitSettings kLimits;

void check_request(const Result<ApiRequest>& request) {
    if (!request) return demand(!request.error().message.empty() && is_valid_utf8(request.error().message));
    demand(!request->prompts.empty() && request->choices_per_prompt >= 1);
    demand(request->choices_per_prompt <= kLimits.n);
    demand(request->prompts.size() <= static_cast<std::size_t>(kLimits.prompts));
    for (const GenerationRequest& one : request->prompts) {
        demand(one.sampling.stop.size() <= static_cast<std::size_t>(kLimits.stops));
        if (const auto* ids = std::get_if<TokenPrompt>(&one.prompt))
            for (const TokenId id : ids->ids) demand(id >= 0 && id < kInfo.vocab_size);
        // What goes on to the template is JSON again.
        if (const auto* chat = std::get_if<ChatPrompt>(&one.prompt))
            demand(static_cast<bool>(parse_json(chat->messages_json, kLimits.json_depth)));
    }
}

}  // namespace
}  // namespace attune::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace attune;
    const std::string_view text = fuzz::text_of(data, size);
    const DecodeContext context{fuzz::kInfo, fuzz::kLimits};
    const WsMessage message = decode_ws_message(text, {fuzz::kInfo, fuzz::kLimits, true});
    fuzz::demand(message.fault || message.kind != WsMessage::Kind::request || message.request);
    if (message.request) fuzz::check_request(*message.request);

    const auto value = parse_json(text, fuzz::kLimits.json_depth);
    if (!value) return 0;
    fuzz::demand(is_valid_utf8(text));
    const std::string written = to_json(*value);
    const auto again = parse_json(written, fuzz::kLimits.json_depth);
    fuzz::demand(again && to_json(*again) == written);
    const auto* object = value->if_object();
    if (object == nullptr) return 0;
    fuzz::check_request(decode_completion(*object, context));
    fuzz::check_request(decode_chat(*object, context));
    (void)decode_load_adapter(*object);
    (void)decode_unload_adapter(*object);
    (void)decode_tokenize(*object, context);
    (void)decode_detokenize(*object, context);
    return 0;
}
