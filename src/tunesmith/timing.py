"""The statistics of times: an interval for a median, a ratio over processes, which claims survive together, the target.

Pure arithmetic; no device and no clock is read here. Times are in microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tunesmith.trial import Timing

MINIMUM_EFFECT = 0.01  # a win smaller than this is not claimed
CONFIDENCE = 0.95
Claim = TypeVar("Claim")


def median_interval(samples: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float, float]:
    """The median and an interval from order statistics, without assuming any distribution."""
    ordered = sorted(samples)
    n = len(ordered)
    median = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    outside, low = 0.0, 0
    while low < n // 2:
        outside += math.comb(n, low) * 0.5**n
        if 2 * outside > 1 - confidence:
            break
        low += 1
    low = max(0, low - 1)
    return median, ordered[low], ordered[n - 1 - low]


def minimum_interval(samples: Sequence[float]) -> tuple[float, float, float]:
    """The minimum of interleaved rounds, for CPUs: noise only ever adds. The interval reaches to the lower quartile."""
    ordered = sorted(samples)
    return ordered[0], ordered[0], ordered[len(ordered) // 4]


def timing(samples: Sequence[float], *, minimum: bool) -> Timing:
    """The figure and interval of one configuration on one workload: median on a GPU, minimum on a CPU."""
    figure, low, high = (minimum_interval if minimum else median_interval)(samples)
    return Timing(figure, low, high, tuple(samples))


@dataclass(frozen=True)
class Ratio:
    """How many times faster, with the interval over processes, and the p-value of "no faster than the minimum effect"."""

    ratio: float
    low: float
    high: float
    p: float = 1.0
    processes: int = 0


def ratio_over_processes(log_ratios: Sequence[float], confidence: float = CONFIDENCE) -> Ratio:
    """A t-interval on log ratios, one per fresh process (placement varies between processes, not within one)."""
    n = len(log_ratios)
    mean = sum(log_ratios) / n
    if n < 2:
        return Ratio(math.exp(mean), 0.0, math.inf, 1.0, n)
    deviation = math.sqrt(sum((x - mean) ** 2 for x in log_ratios) / (n - 1) / n)
    reach = student_quantile(0.5 + confidence / 2, n - 1) * deviation
    excess = mean - math.log1p(MINIMUM_EFFECT)
    t = excess / deviation if deviation else math.copysign(math.inf, excess)
    return Ratio(math.exp(mean), math.exp(mean - reach), math.exp(mean + reach), 1.0 - student_cdf(t, n - 1), n)


def holm(p_values: Mapping[Claim, float], level: float = 1 - CONFIDENCE) -> dict[Claim, bool]:
    """Which claims hold when all of them are made together (Holm's step-down)."""
    held, standing = {}, True
    for rank, (name, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        standing = standing and p <= level / (len(p_values) - rank)
        held[name] = standing
    return {name: held[name] for name in p_values}


def student_cdf(t: float, degrees: int) -> float:
    """Student's t distribution, through the incomplete beta function."""
    if math.isinf(t):
        return 1.0 if t > 0 else 0.0
    tail = 0.5 * _incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t))
    return 1.0 - tail if t > 0 else tail


def student_quantile(p: float, degrees: int) -> float:
    """The value below which a share `p` of Student's t lies, by bisection."""
    low, high = -1e3, 1e3
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if student_cdf(middle, degrees) < p else (low, middle)
    return (low + high) / 2


def _incomplete_beta(a: float, b: float, x: float) -> float:
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x > (a + 1) / (a + b + 2):
        return 1.0 - _incomplete_beta(b, a, 1 - x)
    # Lentz's continued fraction
    tiny = 1e-300
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1)
    d = 1.0 / (d if abs(d) > tiny else tiny)
    fraction = d
    for m in range(1, 200):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 + numerator * d
            d = 1.0 / (d if abs(d) > tiny else tiny)
            c = 1.0 + numerator / c
            c = c if abs(c) > tiny else tiny
            fraction *= c * d
        if abs(c * d - 1.0) < 1e-14:
            break
    return front * fraction / a
