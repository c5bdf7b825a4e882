//! Benchmarks: the same work on several directories, interleaved, as ratios
