// The share that one panel of a weight has in what a product asks for ahead. Included within the unnamed namespace of a
// file that is compiled once per instruction set, as lanes.hpp is.

/// Hands a panel's lines out, as far as they lie together.
class PanelShare {
public:
    PanelShare(const LinesAhead& ahead, std::int64_t panel) : ahead_(ahead) {
        if (ahead.lines == 0) return;
        panel += ahead.first_panel;
        next_ = ahead.lines * panel / ahead.panels;
        end_ = ahead.lines * (panel + 1) / ahead.panels;
        std::int64_t beyond = ahead.count;  // run_ holds the line, `beyond` does not
        while (beyond - run_ > 1) {
            const std::int64_t middle = (run_ + beyond) / 2;
            (ahead.runs[middle].before <= next_ ? run_ : beyond) = middle;
        }
    }

    std::int64_t left() const { return end_ - next_; }
    /// What the next of so many blocks asks for, so that all ask for as much.
    std::int64_t part(std::int64_t blocks) const { return (left() + blocks - 1) / blocks; }
    /// -> how many lines from `first` on, `most` at most and no more than are left; both at least 1.
    int take(std::int64_t most, const char*& first) {
        const LineRun& run = ahead_.runs[run_];
        const std::int64_t run_end = run_ + 1 < ahead_.count ? ahead_.runs[run_ + 1].before : ahead_.lines;
        std::int64_t lines = most < left() ? most : left();
        if (run_end - next_ < lines) lines = run_end - next_;
        first = run.first + (next_ - run.before) * kCacheLine;
        next_ += lines;
        if (next_ == run_end) ++run_;
        return static_cast<int>(lines);
    }

private:
    const LinesAhead& ahead_;
    std::int64_t run_ = 0;
    std::int64_t next_ = 0;
    std::int64_t end_ = 0;
};
