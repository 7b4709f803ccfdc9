#pragma once

#include "bench/load/options.hpp"
#include "bench/load/stream_client.hpp"

#include <string>
#include <vector>

namespace attune::load {

/// One JSON line: throughput, percentiles, goodput, errors.
std::string report(const Options& options, const std::vector<Outcome>& outcomes);

/// The value below which `share` (0..1) of the values lie, interpolated between neighbours; 0 for no values.
double percentile(std::vector<double> values, double share);

}  // namespace attune::load
