"""A Gaussian process over points: a Matérn 5/2 kernel with a scale per group of coordinates.

`Scales` holds what is fitted: how fast the loss changes along each group and how much of it is noise, by maximum a
posteriori, so that a group of which little was seen keeps an ordinary scale. `Posterior` knows the points that were
taken and predicts at the points of a pool; another point costs one column. Knows nothing of configurations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tunesmith.search.features import Points

Vector = NDArray[np.float64]

USUAL, SPREAD = 0.6, 0.8  # of a scale before anything was seen, and of its logarithm
NOISE, NOISE_SPREAD = 0.02, 1.0  # likewise of the noise, as a share of the variance
STEPS, RATE = 12, 0.3  # of the ascent; it goes on from the last fit
JITTER = 1e-6
ROOM = 64  # points that are taken without copying


def kernel(squared: NDArray[Any]) -> NDArray[Any]:
    """Matérn 5/2 of squared distances."""
    r = np.sqrt(5.0 * squared)
    found: NDArray[Any] = (1.0 + r + r * r / 3.0) * np.exp(-r)
    return found


def squared_distances(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    found: NDArray[Any] = np.maximum((a * a).sum(1)[:, None] + (b * b).sum(1)[None] - 2.0 * a @ b.T, 0.0)
    return found


@dataclass
class Scales:
    """The logarithms of each group's scale and, last, of the noise; and the variance that goes with them."""

    groups: NDArray[np.int64]
    logs: Vector
    variance: float = 1.0

    @staticmethod
    def usual(groups: NDArray[np.int64], number: int) -> Scales:
        return Scales(groups, np.r_[np.full(number, math.log(USUAL)), math.log(NOISE)])

    @property
    def noise(self) -> float:
        return math.exp(self.logs[-1]) + JITTER

    def scaled(self, points: Points) -> Points:
        scaled: Points = points * np.exp(self.logs[:-1])[self.groups]
        return scaled

    def fit(self, points: Points, losses: Vector) -> None:
        """Move towards the most probable scales, by Adam's rule."""
        number = len(self.logs) - 1
        squares = np.zeros((number, len(points), len(points)))
        for column, group in enumerate(self.groups):
            squares[group] += (points[:, column, None] - points[None, :, column]) ** 2
        middle = np.r_[np.full(number, math.log(USUAL)), math.log(NOISE)]
        width = np.r_[np.full(number, SPREAD), NOISE_SPREAD]
        logs, best = self.logs.copy(), math.inf
        mean, square = np.zeros_like(logs), np.zeros_like(logs)
        for step in range(1, STEPS + 2):
            value, slope, variance = _evidence(logs, squares, losses)
            value += 0.5 * float((((logs - middle) / width) ** 2).sum())
            slope += (logs - middle) / width**2
            if value < best:
                best, self.logs, self.variance = value, logs.copy(), variance
            mean, square = 0.8 * mean + 0.2 * slope, 0.9 * square + 0.1 * slope * slope
            logs = logs - RATE * (mean / (1 - 0.8**step)) / (np.sqrt(square / (1 - 0.9**step)) + 1e-8)


def _evidence(logs: Vector, squares: Vector, losses: Vector) -> tuple[float, Vector, float]:
    """Minus the log evidence up to a constant, its slope in `logs`, and the variance that is best with them."""
    n = len(losses)
    scales, noise = np.exp(logs[:-1]), math.exp(logs[-1])
    r = np.sqrt(5.0 * np.tensordot(scales**2, squares, 1))
    decay = np.exp(-r)
    lower = np.linalg.inv(np.linalg.cholesky((1 + r + r * r / 3) * decay + (noise + JITTER) * np.eye(n)))
    inverse = lower.T @ lower
    weights = inverse @ losses
    variance = (losses @ weights + 2.0) / (n + 2.0)  # as if two more had been seen, of variance one
    value = 0.5 * (n + 2.0) * math.log(variance) - float(np.log(np.diag(lower)).sum())
    by_kernel = 0.5 * (inverse - np.outer(weights, weights) / variance)
    by_square = by_kernel * (-5.0 / 6.0) * (1 + r) * decay
    slope = np.r_[2 * scales**2 * np.tensordot(squares, by_square, 2), noise * np.trace(by_kernel)]
    return value, slope, float(variance)


class Posterior:
    """What points that were taken say about a pool of points."""

    def __init__(self, scales: Scales, taken: Points, pool: Points) -> None:
        self.scales = scales
        self._taken, self._pool = scales.scaled(taken), scales.scaled(pool).astype(np.float32)
        own = kernel(squared_distances(self._taken, self._taken)) + scales.noise * np.eye(len(taken))
        self._lower = np.linalg.inv(np.linalg.cholesky(own))
        across = kernel(squared_distances(self._taken.astype(np.float32), self._pool))
        self._whitened = np.zeros((len(taken) + ROOM, len(pool)), np.float32)  # of which the first rows are filled
        self._whitened[: len(taken)] = self._lower.astype(np.float32) @ across
        self._explained = (self._whitened**2).sum(0)

    def extend(self, point: Points) -> None:
        """Take one more point."""
        new = self.scales.scaled(point)[None, :]
        column = self._lower @ kernel(squared_distances(self._taken, new))[:, 0]
        rest = math.sqrt(max(1.0 + self.scales.noise - column @ column, JITTER))
        across = kernel(squared_distances(new.astype(np.float32), self._pool))[0]
        size = len(column)
        row = (across - column.astype(np.float32) @ self._whitened[:size]) / np.float32(rest)
        below = np.r_[-(column @ self._lower), 1.0] / rest
        self._lower = np.block([[self._lower, np.zeros((size, 1))], [below[None, :]]])
        if size == len(self._whitened):
            self._whitened = np.concatenate([self._whitened, np.zeros((ROOM, len(row)), np.float32)])
        self._whitened[size] = row
        self._explained += row * row
        self._taken = np.concatenate([self._taken, new])

    def predict(self, losses: Vector) -> tuple[Vector, Vector]:
        """Mean and standard deviation over the pool, given the losses of the points taken."""
        mean = (self._lower @ losses).astype(np.float32) @ self._whitened[: len(losses)]
        spread = np.sqrt(np.maximum(1.0 - self._explained, JITTER) * self.scales.variance)
        return mean.astype(np.float64), spread.astype(np.float64)
