#include "engine/module/path_pattern.hpp"

#include "engine/files/quote.hpp"

#include <algorithm>
#include <cctype>
#include <utility>

namespace attune {

namespace {

bool is_word(unsigned char c) { return std::isalnum(c) != 0 || c == '_'; }

}  // namespace

// Recursive descent from the text to the automaton. A fragment is a run of steps [first, steps.size()) whose way out is
// the step after its last.
class PatternCompiler {
public:
    explicit PatternCompiler(std::string_view text) : text_(text) {}

    Result<PathPattern> compile() {
        alternatives(0);
        if (fault_.empty() && at_ != text_.size()) fault_ = "has a \")\" too many";
        if (!fault_.empty()) return make_error(Errc::invalid_module, "pattern " + in_quotes(text_) + " " + fault_);
        emit(PathPattern::Op::accept);
        return std::move(out_);
    }

private:
    using Op = PathPattern::Op;
    using Step = PathPattern::Step;
    static constexpr int kMaxDepth = 50;
    static constexpr int kMaxRepeat = 1000;

    bool more() const { return fault_.empty() && at_ < text_.size(); }
    bool take(std::string_view token) {
        if (text_.substr(at_, token.size()) != token) return false;
        at_ += token.size();
        return true;
    }
    void fail(std::string fault) {
        if (fault_.empty()) fault_ = std::move(fault);
    }
    int here() const { return static_cast<int>(out_.steps_.size()); }
    void emit(Op op, int other = 0) {
        if (out_.steps_.size() >= PathPattern::kMaxSteps) return fail("is too large once its repeats are written out");
        out_.steps_.push_back({op, here() + 1, other});
    }
    void emit_set(const PathPattern::ByteSet& set) {
        out_.sets_.push_back(set);
        emit(Op::set, static_cast<int>(out_.sets_.size()) - 1);
    }
    // Opens a gap of one step at `at`; targets inside the moved part move with it.
    void insert_split(int at) {
        emit(Op::split);
        if (!fault_.empty()) return;
        auto& steps = out_.steps_;
        for (int i = here() - 1; i > at; --i) {
            steps[static_cast<std::size_t>(i)] = steps[static_cast<std::size_t>(i - 1)];
            ++steps[static_cast<std::size_t>(i)].next;
            if (steps[static_cast<std::size_t>(i)].op == Op::split) ++steps[static_cast<std::size_t>(i)].other;
        }
        steps[static_cast<std::size_t>(at)] = {Op::split, at + 1, here()};
    }
    void copy(const std::vector<Step>& piece, int from) {
        const int shift = here() - from;
        for (Step step : piece) {
            emit(step.op, step.op == Op::split ? step.other + shift : step.other);
            if (!fault_.empty()) return;
            out_.steps_.back().next = step.next + shift;
        }
    }

    void alternatives(int depth) {
        if (depth > kMaxDepth) return fail("is nested too deeply");
        std::vector<int> exits;
        while (true) {
            const int first = here();
            sequence(depth);
            if (!more() || text_[at_] != '|') break;
            ++at_;
            insert_split(first);
            exits.push_back(here());
            emit(Op::jump);
            if (!fault_.empty()) return;
            out_.steps_[static_cast<std::size_t>(first)].other = here();
        }
        for (const int exit : exits) out_.steps_[static_cast<std::size_t>(exit)].next = here();
    }

    void sequence(int depth) {
        while (more() && text_[at_] != '|' && text_[at_] != ')') {
            const int first = here();
            item(depth);
            if (fault_.empty()) repeats(first);
        }
    }

    void repeats(int first) {
        if (!more()) return;
        int low = 0;
        int high = -1;  // no end
        if (take("*")) {
        } else if (take("+")) {
            low = 1;
        } else if (take("?")) {
            high = 1;
        } else if (text_[at_] != '{' || !bounds(low, high)) {
            return;
        }
        if (take("+")) return fail("uses a possessive repeat, which is not supported");
        take("?");  // lazy or not, it is the same set of texts
        if (more() && (text_[at_] == '*' || text_[at_] == '+' || text_[at_] == '?')) return fail("repeats a repeat");
        repeat(first, low, high);
    }

    // "{2}", "{2,}", "{,3}", "{2,3}"; anything else after "{" is plain text, as in Python.
    bool bounds(int& low, int& high) {
        const std::size_t close = text_.find('}', at_);
        if (close == std::string_view::npos) return false;
        const std::string_view inside = text_.substr(at_ + 1, close - at_ - 1);
        const std::size_t comma = inside.find(',');
        const std::string_view left = inside.substr(0, comma);
        const std::string_view right = comma == std::string_view::npos ? left : inside.substr(comma + 1);
        if (inside.empty()) return false;
        const auto number = [&](std::string_view digits, int& value) {
            if (digits.empty()) return true;
            value = 0;
            for (const char c : digits) {
                if (c < '0' || c > '9') return false;
                value = std::min(value * 10 + (c - '0'), kMaxRepeat + 1);
            }
            return true;
        };
        if (!number(left, low) || !number(right, high)) return false;
        if (low > kMaxRepeat || high > kMaxRepeat) fail("repeats too often");
        if (high >= 0 && high < low) fail("has a repeat whose end is below its start");
        at_ = close + 1;
        return true;
    }

    void repeat(int first, int low, int high) {
        const std::vector<Step> piece(out_.steps_.begin() + first, out_.steps_.end());
        if (low == 0 && high == 0) {
            out_.steps_.resize(static_cast<std::size_t>(first));
            return;
        }
        for (int i = 1; i < low && fault_.empty(); ++i) copy(piece, first);
        if (low == 0) out_.steps_.resize(static_cast<std::size_t>(first));
        if (high < 0) {
            const int loop = here();
            emit(Op::split);
            copy(piece, first);
            emit(Op::jump);
            if (!fault_.empty()) return;
            out_.steps_.back().next = loop;
            out_.steps_[static_cast<std::size_t>(loop)].other = here();
            return;
        }
        std::vector<int> exits;
        for (int i = low; i < high && fault_.empty(); ++i) {
            exits.push_back(here());
            emit(Op::split);
            copy(piece, first);
        }
        if (!fault_.empty()) return;
        for (const int exit : exits) out_.steps_[static_cast<std::size_t>(exit)].other = here();
    }

    void item(int depth) {
        const char c = text_[at_++];
        switch (c) {
            case '(':
                return group(depth);
            case '[':
                return byte_class();
            case '\\':
                return escape();
            case '.': {
                PathPattern::ByteSet any;
                any.set();
                any.reset('\n');
                return emit_set(any);
            }
            case '^':
                return emit(Op::begin);
            case '$':
                return emit(Op::end);
            case '*':
            case '+':
            case '?':
                return fail("repeats nothing");
            default:
                return literal(c);
        }
    }

    void literal(char c) {
        PathPattern::ByteSet set;
        set.set(static_cast<unsigned char>(c));
        emit_set(set);
    }

    void group(int depth) {
        if (take("?=") || take("?!")) {
            const bool negative = text_[at_ - 1] == '!';
            // One level of lookahead costs a factor of the path's length; levels would multiply.
            if (in_look_) return fail("has a lookahead inside a lookahead, which is not supported");
            PatternCompiler inner(text_);
            inner.in_look_ = true;
            inner.at_ = at_;
            inner.alternatives(depth + 1);
            inner.emit(Op::accept);
            if (!inner.fault_.empty()) return fail(inner.fault_);
            at_ = inner.at_;
            if (!take(")")) return fail("has a \"(\" without its \")\"");
            looks_steps_ += inner.out_.steps_.size();
            if (looks_steps_ > PathPattern::kMaxSteps) return fail("is too large");
            out_.looks_.push_back(std::move(inner.out_));
            return emit(negative ? Op::look_not : Op::look, static_cast<int>(out_.looks_.size()) - 1);
        }
        if (take("?P<")) {
            const std::size_t close = text_.find('>', at_);
            if (close == std::string_view::npos) return fail("has a group name without its \">\"");
            at_ = close + 1;
        } else if (!take("?:") && at_ < text_.size() && text_[at_] == '?') {
            return fail("uses " + in_quotes("(" + std::string(text_.substr(at_, 3))) + ", which is not supported");
        }
        alternatives(depth + 1);
        if (fault_.empty() && !take(")")) fail("has a \"(\" without its \")\"");
    }

    // \d \w \s and their opposites; false for any other letter.
    static bool named_class(char c, PathPattern::ByteSet& set) {
        for (int byte = 0; byte < 128; ++byte) {
            const bool in = std::tolower(c) == 'd'   ? std::isdigit(byte) != 0
                            : std::tolower(c) == 'w' ? is_word(static_cast<unsigned char>(byte))
                                                     : std::isspace(byte) != 0;
            if (in) set.set(static_cast<std::size_t>(byte));
        }
        if (std::isupper(static_cast<unsigned char>(c)) != 0) set.flip();
        return std::string_view("dwsDWS").find(c) != std::string_view::npos;
    }

    // The byte an escape stands for; fails for those that stand for something else.
    char escaped_byte(char c) {
        if (const std::size_t at = std::string_view("ntrfv").find(c); at != std::string_view::npos)
            return "\n\t\r\f\v"[at];
        if (std::isdigit(static_cast<unsigned char>(c)) != 0) fail("uses a back-reference, which is not supported");
        if (std::isalpha(static_cast<unsigned char>(c)) != 0)
            fail("uses an unknown escape \"\\" + std::string(1, c) + "\"");
        return c;
    }

    void escape() {
        if (at_ == text_.size()) return fail("ends in a \"\\\"");
        const char c = text_[at_++];
        PathPattern::ByteSet set;
        if (named_class(c, set)) return emit_set(set);
        if (c == 'b') return emit(Op::word_edge);
        if (c == 'B') return emit(Op::no_word_edge);
        if (c == 'A') return emit(Op::begin);
        if (c == 'Z') return emit(Op::end);
        literal(escaped_byte(c));
    }

    void byte_class() {
        PathPattern::ByteSet set;
        const bool negative = take("^");
        for (bool first = true; first || at_ >= text_.size() || text_[at_] != ']'; first = false) {
            if (at_ >= text_.size()) return fail("has a \"[\" without its \"]\"");
            char low = text_[at_++];
            if (low == '\\') {
                if (at_ >= text_.size()) return fail("ends in a \"\\\"");
                const char c = text_[at_++];
                PathPattern::ByteSet named;
                if (named_class(c, named)) {
                    set |= named;
                    continue;
                }
                low = c == 'b' ? '\b' : escaped_byte(c);
            }
            char high = low;
            if (at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']') {
                ++at_;
                high = text_[at_++];
                if (high == '\\') {
                    if (at_ >= text_.size()) return fail("ends in a \"\\\"");
                    high = escaped_byte(text_[at_++]);
                }
            }
            const auto from = static_cast<unsigned char>(low);
            const auto to = static_cast<unsigned char>(high);
            if (to < from) return fail("has a range that runs backwards");
            for (unsigned byte = from; byte <= to; ++byte) set.set(byte);
        }
        ++at_;
        emit_set(negative ? ~set : set);
    }

    std::string_view text_;
    std::size_t at_ = 0;
    std::size_t looks_steps_ = 0;
    bool in_look_ = false;
    std::string fault_;
    PathPattern out_;
};

Result<PathPattern> PathPattern::compile(std::string_view pattern) {
    if (pattern.size() > kMaxPatternBytes)
        return make_error(Errc::invalid_module, "a pattern has " + std::to_string(pattern.size()) +
                                                    " bytes, the limit is " + std::to_string(kMaxPatternBytes));
    return PatternCompiler(pattern).compile();
}

bool PathPattern::full_match(std::string_view path) const { return run(path, 0, true); }
bool PathPattern::match(std::string_view path) const { return run(path, 0, false); }

// Depth first over (step, position), each visited once: no pattern can make it slow.
bool PathPattern::run(std::string_view path, std::size_t from, bool to_end) const {
    const std::size_t width = path.size() + 1;
    std::vector<bool> seen(steps_.size() * width);
    std::vector<std::pair<int, std::size_t>> open{{0, from}};
    const auto edge = [&](std::size_t at) {
        const bool before = at > 0 && is_word(static_cast<unsigned char>(path[at - 1]));
        const bool after = at < path.size() && is_word(static_cast<unsigned char>(path[at]));
        return before != after;
    };
    while (!open.empty()) {
        const auto [index, at] = open.back();
        open.pop_back();
        const std::size_t state = static_cast<std::size_t>(index) * width + at;
        if (seen[state]) continue;
        seen[state] = true;
        const Step& step = steps_[static_cast<std::size_t>(index)];
        bool pass = true;
        std::size_t next_at = at;
        switch (step.op) {
            case Op::accept:
                if (!to_end || at == path.size()) return true;
                pass = false;
                break;
            case Op::set:
                pass = at < path.size() &&
                       sets_[static_cast<std::size_t>(step.other)][static_cast<unsigned char>(path[at])];
                ++next_at;
                break;
            case Op::split:
                open.emplace_back(step.other, at);
                break;
            case Op::jump:
                break;
            case Op::begin:
                pass = at == 0;
                break;
            case Op::end:
                pass = at == path.size();
                break;
            case Op::word_edge:
                pass = edge(at);
                break;
            case Op::no_word_edge:
                pass = !edge(at);
                break;
            case Op::look:
            case Op::look_not:
                pass = looks_[static_cast<std::size_t>(step.other)].run(path, at, false) == (step.op == Op::look);
                break;
        }
        if (pass) open.emplace_back(step.next, next_at);
    }
    return false;
}

}  // namespace attune
