#pragma once

#include "attune/error.hpp"

#include <cassert>
#include <utility>
#include <variant>

namespace attune {

/// A value or the Error that prevented it. Foreseen failures travel this way; exceptions are for our own faults.
template <class T>
class [[nodiscard]] Result {
public:
    Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
    Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

    explicit operator bool() const noexcept { return state_.index() == 0; }
    T& operator*() & { return value(); }
    const T& operator*() const& { return value(); }
    T&& operator*() && { return std::move(value()); }
    T* operator->() { return &value(); }
    const T* operator->() const { return &value(); }
    T& value() & {
        assert(*this);
        return *std::get_if<0>(&state_);
    }
    const T& value() const& {
        assert(*this);
        return *std::get_if<0>(&state_);
    }
    T&& value() && {
        assert(*this);
        return std::move(*std::get_if<0>(&state_));
    }
    Error& error() {
        assert(!*this);
        return *std::get_if<1>(&state_);
    }
    const Error& error() const {
        assert(!*this);
        return *std::get_if<1>(&state_);
    }

private:
    std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
public:
    Result() = default;
    Result(Error error) : error_(std::move(error)), failed_(true) {}

    explicit operator bool() const noexcept { return !failed_; }
    Error& error() {
        assert(failed_);
        return error_;
    }
    const Error& error() const {
        assert(failed_);
        return error_;
    }

private:
    Error error_;
    bool failed_ = false;
};

}  // namespace attune
