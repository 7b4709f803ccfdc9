#pragma once

#include "engine/text/normalizer.hpp"
#include "engine/text/unicode.hpp"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attune {

/// Builds the next text from parts of the old one, carrying origins along.
class Rewriter {
public:
    explicit Rewriter(NormalText& text) : text_(text) { out_.reserve(text.text.size() + 16); }

    void keep(std::size_t begin, std::size_t end) {
        out_.append(text_.text, begin, end - begin);
        if (!text_.tracked) return;
        for (std::size_t i = begin; i < end; ++i) origins_.push_back(text_.origins[i]);
    }
    /// `with` takes the place of old bytes [begin, end); an empty range stands at `begin`.
    void replace(std::size_t begin, std::size_t end, std::string_view with) {
        out_.append(with);
        if (text_.tracked) origins_.insert(origins_.end(), with.size(), origin(begin, end));
    }
    void finish() {
        text_.text = std::move(out_);
        text_.origins = std::move(origins_);
    }

private:
    NormalText::Origin origin(std::size_t begin, std::size_t end) const {
        if (begin < end) return {text_.origins[begin].begin, text_.origins[end - 1].end};
        if (begin < text_.origins.size()) return {text_.origins[begin].begin, text_.origins[begin].begin};
        const std::uint32_t last = text_.origins.empty() ? 0 : text_.origins.back().end;
        return {last, last};
    }

    NormalText& text_;
    std::string out_;
    std::vector<NormalText::Origin> origins_;
};

/// Calls `change(code_point, out)` for each character; it appends what the character becomes.
template <class Change>
void map_characters(NormalText& text, Change&& change) {
    Rewriter out(text);
    std::string mapped;
    for (std::size_t at = 0; at < text.text.size();) {
        const CodePoint point = code_point_at(text.text, at);
        mapped.clear();
        change(point.value, mapped);
        out.replace(at, at + point.bytes, mapped);
        at += point.bytes;
    }
    out.finish();
}

}  // namespace attune
