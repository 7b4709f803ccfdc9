#include "actors/messages.hpp"

namespace attune {

caf::error to_caf(const Error& error) { return caf::make_error(error.code, error.message, error.param); }

Error from_caf(const caf::error& error) {
    if (error && error.category() == caf::atom("attune") && error.context().match_elements<std::string, std::string>())
        return Error{static_cast<Errc>(error.code()), error.context().get_as<std::string>(0),
                     error.context().get_as<std::string>(1)};
    return make_error(Errc::unavailable, "a part of the server did not answer");
}

HouseConfig::HouseConfig() {
    add_message_types<caf::id_block::attune>();
    add_error_category(caf::atom("attune"),
                       [](std::uint8_t code, caf::atom_value, const caf::message& context) -> std::string {
                           if (context.size() > 0 && context.match_element<std::string>(0))
                               return context.get_as<std::string>(0);
                           return "error " + std::to_string(code);
                       });
    // Everything that blocks is detached; two workers carry the messages between them. They wait for a message to come:
    // those that steal work look for it 20,000 times a second after each one, on the cores that the kernels need.
    set("scheduler.max-threads", 2u);
    set("scheduler.policy", caf::atom("sharing"));
}

}  // namespace attune
