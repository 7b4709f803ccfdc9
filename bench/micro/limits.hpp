#pragma once

#include <vector>

namespace attune::bench {

/// What this machine gives at most, with all threads at work at once. Best of several short runs; 0: not measured,
/// because the processor lacks the instruction.
struct Limits {
    double fma_gflops = 0;     ///< float32 multiply-adds, in 10^9 operations per second (an FMA is two)
    double bf16_dot_gops = 0;  ///< vdpbf16ps, likewise
    double int8_dot_gops = 0;  ///< vpdpbusd, likewise
    double read_gb_per_s = 0;  ///< reading memory that is in no cache, asked for ahead
    double copy_gb_per_s = 0;  ///< memcpy, bytes copied
};

/// Takes about two seconds and `threads` * 256 MiB.
Limits measure_limits(int threads);

/// Seconds that neither arithmetic at `gops` nor reading `bytes` can undercut.
double least_seconds(double operations, double gops, double bytes, double read_gb_per_s);

double median(std::vector<double> values);

}  // namespace attune::bench
