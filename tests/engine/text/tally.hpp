#pragma once

#include <catch2/catch.hpp>

#include <iostream>
#include <string>
#include <utility>

namespace attune {

/// Counts what differs, shows the first few, and prints the count: a broken table would print a thousand texts
/// otherwise.
class Tally {
public:
    explicit Tally(std::string what) : what_(std::move(what)) {}
    void check(bool same, const std::string& context) {
        ++checks_;
        if (same) return;
        if (++wrong_ <= 4) FAIL_CHECK(what_ << ": " << context);
    }
    void conclude() {
        std::cout << "  " << what_ << ": " << checks_ - wrong_ << " of " << checks_ << "\n";
        CHECK(checks_ > 0);
        CHECK(wrong_ == 0);
    }

private:
    std::string what_;
    int checks_ = 0;
    int wrong_ = 0;
};

}  // namespace attune
