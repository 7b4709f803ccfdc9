// routes.toml or its JSON form, then NUL and a message: rules that were read choose, and say why.
#include "config/routes_file.hpp"
#include "engine/route/route_table.hpp"
#include "engine/text/unicode.hpp"
#include "fuzz/fuzz_input.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace attune;
    const auto [toml, message] = fuzz::split_at_nul(fuzz::text_of(data, size));
    (void)Classifier::parse(message, "router.bin");
    const bool is_json = std::string_view(toml).starts_with("{");
    auto rules = is_json ? parse_routes_json(toml, "routes.toml") : parse_routes(toml, "routes.toml");
    if (!rules) return 0;
    rules->classifier.reset();  // its file is no part of the input
    auto compiled = compile_routes(*rules);
    if (!compiled) return 0;
    const RouteTable table(std::move(*rules), std::move(*compiled));
    RouteQuery query;
    LossyUtf8 lossy;
    lossy.push(message, query.text);
    lossy.flush(query.text);
    const std::string first_word = query.text.substr(0, query.text.find(' '));
    for (std::string RouteQuery::*field :
         {&RouteQuery::text, &RouteQuery::task_id, &RouteQuery::user, &RouteQuery::caller}) {
        query.*field = field == &RouteQuery::text ? query.text : first_word;
        const RouteChoice choice = table.choose(query);
        fuzz::demand(choice.decision.modules.size() == choice.modules.size());
        fuzz::demand(!choice.decision.rule.empty());
    }
    return 0;
}
