#pragma once

#include "bench/load/options.hpp"

#include <string>
#include <vector>

namespace attune::load {

/// One request before it is sent.
struct Planned {
    std::string model;
    std::string body;    ///< JSON
    double start_s = 0;  ///< after the run's start; 0 in a closed loop
};

/// The whole run, decided before it starts: the same options and seed give the same requests.
std::vector<Planned> plan(const Options& options);

}  // namespace attune::load
