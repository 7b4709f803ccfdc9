#include "engine/text/jinja/error.hpp"
#include "engine/text/jinja/filters.hpp"
#include "engine/text/jinja/operations.hpp"

#include <unordered_map>

namespace attune::jinja {
namespace {

bool is_divisible(Context& context, const Value& value, const Value& by) {
    return equals(apply(context, BinaryOperator::modulo, value, by), Value(0));
}

Value only(std::string_view name, const Arguments& arguments) {
    const Bound bound(name, arguments, {"other"}, 1);
    return bound[0];
}

template <Comparison comparison>
bool compares(Context& context, const Value& value, const Arguments& arguments) {
    return compare(context, comparison, value, only("test", arguments));
}

bool call_case(Context& context, const Value& value, const char* method) {
    return is_true(call_method(context, to_text(context.arena, value), method));
}

using Tests = std::unordered_map<std::string_view, Test>;

const Tests& tests() {
    static const Tests table = {
        {"odd", [](Context& c, const Value& v,
                   const Arguments&) { return equals(apply(c, BinaryOperator::modulo, v, Value(2)), Value(1)); }},
        {"even", [](Context& c, const Value& v, const Arguments&) { return is_divisible(c, v, Value(2)); }},
        {"divisibleby",
         [](Context& c, const Value& v, const Arguments& a) { return is_divisible(c, v, only("divisibleby", a)); }},
        {"defined", [](Context&, const Value& v, const Arguments&) { return !v.is_undefined(); }},
        {"undefined", [](Context&, const Value& v, const Arguments&) { return v.is_undefined(); }},
        {"filter",
         [](Context&, const Value& v, const Arguments&) { return v.is_text() && find_filter(v.bytes()) != nullptr; }},
        {"test",
         [](Context&, const Value& v, const Arguments&) { return v.is_text() && find_test(v.bytes()) != nullptr; }},
        {"none", [](Context&, const Value& v, const Arguments&) { return v.is_none(); }},
        {"boolean", [](Context&, const Value& v, const Arguments&) { return v.is_bool(); }},
        {"true", [](Context&, const Value& v, const Arguments&) { return v.is_bool() && v.boolean(); }},
        {"false", [](Context&, const Value& v, const Arguments&) { return v.is_bool() && !v.boolean(); }},
        {"integer", [](Context&, const Value& v, const Arguments&) { return v.is_int(); }},
        {"float", [](Context&, const Value& v, const Arguments&) { return v.is_float(); }},
        {"number", [](Context&, const Value& v, const Arguments&) { return v.is_number(); }},
        {"string", [](Context&, const Value& v, const Arguments&) { return v.is_text(); }},
        {"lower", [](Context& c, const Value& v, const Arguments&) { return call_case(c, v, "islower"); }},
        {"upper", [](Context& c, const Value& v, const Arguments&) { return call_case(c, v, "isupper"); }},
        {"mapping", [](Context&, const Value& v, const Arguments&) { return v.is_dict(); }},
        {"sequence",
         [](Context&, const Value& v, const Arguments&) {
             return v.is_text() || v.is_list_or_tuple() || v.is_dict() || v.is_range() || v.is_undefined();
         }},
        {"iterable",
         [](Context&, const Value& v, const Arguments&) {
             return v.is_text() || v.is_list_or_tuple() || v.is_dict() || v.is_range() || v.is_sequence() ||
                    v.is_undefined();
         }},
        {"callable", [](Context&, const Value& v,
                        const Arguments&) { return (v.is_object() && v.object().is_callable()) || v.is_undefined(); }},
        {"sameas", [](Context&, const Value& v, const Arguments& a) { return v.is_same(only("sameas", a)); }},
        {"escaped", [](Context&, const Value& v, const Arguments&) { return v.is_text() && v.text().is_markup(); }},
        {"in", [](Context& c, const Value& v, const Arguments& a) { return contains(c, only("in", a), v); }},
        {"==", compares<Comparison::equal>},
        {"eq", compares<Comparison::equal>},
        {"equalto", compares<Comparison::equal>},
        {"!=", compares<Comparison::not_equal>},
        {"ne", compares<Comparison::not_equal>},
        {">", compares<Comparison::greater>},
        {"gt", compares<Comparison::greater>},
        {"greaterthan", compares<Comparison::greater>},
        {">=", compares<Comparison::greater_equal>},
        {"ge", compares<Comparison::greater_equal>},
        {"<", compares<Comparison::less>},
        {"lt", compares<Comparison::less>},
        {"lessthan", compares<Comparison::less>},
        {"<=", compares<Comparison::less_equal>},
        {"le", compares<Comparison::less_equal>},
    };
    return table;
}

}  // namespace

Test find_test(std::string_view name) {
    const auto found = tests().find(name);
    return found == tests().end() ? nullptr : found->second;
}

}  // namespace attune::jinja
