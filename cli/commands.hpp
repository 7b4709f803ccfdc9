#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <string>

namespace attune::cli {

/// What a command line asked for; returns the exit status: 0 done, 1 failed or asked wrongly, 2 not available yet.
using Run = std::function<int()>;

inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kNotYet = 2;

// Each adds one subcommand; `run` is set when the command line names it.
void add_serve(CLI::App& app, Run& run);
void add_generate(CLI::App& app, Run& run);
void add_module(CLI::App& app, Run& run);
void add_config(CLI::App& app, Run& run);
void add_train_router(CLI::App& app, Run& run);
/// `attune module pack` and `convert`.
void add_make_package(CLI::App& command, Run& run);
/// bench, tune, train: announced, so that scripts get a clear answer.
void add_later(CLI::App& app, Run& run);

/// A subcommand that says it is not available yet, whatever arguments follow. `words`: all that the user types after
/// attune, the last one is the subcommand's name.
void add_not_yet(CLI::App& parent, const std::string& words, const std::string& description, Run& run);

}  // namespace attune::cli
