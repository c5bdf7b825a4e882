"""Ratios of times that were measured in turns, with their 95 % intervals."""

import math
import statistics

# Student's t for 95 %, by degrees of freedom.
T = {8: 2.306, 9: 2.262, 14: 2.145, 19: 2.093, 29: 2.045, 39: 2.023, 59: 2.001, 99: 1.984}


def ratio(slow, fast):
    """The geometric mean of the ratios, pair by pair, and its interval over the logarithms."""
    logs = [math.log(one / other) for one, other in zip(slow, fast, strict=True)]
    t = T[max(k for k in T if k <= len(logs) - 1)]
    mean, spread = statistics.mean(logs), statistics.stdev(logs) / math.sqrt(len(logs))
    return [math.exp(mean + sign * t * spread) for sign in (0, -1, 1)]
