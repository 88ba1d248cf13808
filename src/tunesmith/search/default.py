"""What users get: starting points, a few random ones, then what a model of the losses so far holds to be most promising.

A Gaussian process predicts the loss of every row of a pool, and how sure it is; once something failed, another
one predicts where trials work. Asked is the row with the largest expected improvement, times that chance. The pool is the
whole space where that is small; elsewhere random rows, what is one choice away from the best, and their children. What
is under way is believed to come out as predicted, so that the next one is looked for elsewhere.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tunesmith.search.evolution import LITTER, children
from tunesmith.search.features import Features
from tunesmith.search.gaussian import Posterior, Scales, Vector
from tunesmith.search.memory import Memory
from tunesmith.search.single import one_thread
from tunesmith.space import Rows, Space
from tunesmith.template import Config
from tunesmith.trial import Trial

FIRST = 4  # starting points and random rows before the model; at least one is random
AHEAD, AHEAD_SHARE = 8, 0.25  # how many may be under way: so many, and this share of those told
ENOUGH = 3  # measured trials that a model needs
REFIT = 1.15  # the model is fitted anew when this much more is known
LEARNED = 400  # trials that a model learns from at most
POOL = 2**14  # rows that are looked at; larger spaces are sampled
SAMPLED, BRED, BEST = 2048, 1024, 6  # the parts of a pool: random rows, children of the best few and all around them
CLIPPED = 2.0  # losses beyond this many times the median's distance from the best count a tenth
HOPE = 0.8  # the chance to work where nothing was tried
UNLIKELY = 0.3  # below this chance a row is asked when nothing else is left


class Default:
    """Starting points, a few scouts, then expected improvement."""

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self._memory, self._rng = Memory(space, rng), rng
        self._features = Features.of(space)
        self._scales = Scales.usual(self._features.groups, self._features.scales)
        self._safe = Scales.usual(self._features.groups, self._features.scales)  # of whether it works
        self._whole = space.matrix if space.enumerated and len(space) <= POOL else None
        self._scouts = max(1, FIRST - len(self._memory.starts))
        self._model: _Model | None = None
        self._refit_at = 0
        self._believed: dict[bytes, float] = {}  # the losses that are expected of what is under way

    def ask(self) -> Config | None:
        with one_thread():
            return self._memory.start() or (
                None if self._ahead() else self._scout() or self._promising() or self._blind()
            )

    def tell(self, trial: Trial) -> None:
        memory, before = self._memory, self._memory.best(1)
        row = memory.tell(trial)
        self._believed.pop(row.tobytes(), None)
        if self._model is not None:
            with one_thread():
                current = self._model.tell(row, memory.losses[-1])
            if not current or (self._whole is None and memory.best(1) != before):
                self._model = None  # its pool is around the best that was, or it knew of no failure

    def _ahead(self) -> bool:
        """Whether so much is under way that the next one is better chosen once more was told."""
        return len(self._memory.under_way) >= AHEAD + len(self._memory.rows) * AHEAD_SHARE

    def _scout(self) -> Config | None:
        if self._scouts == 0:
            return None
        self._scouts -= 1
        return self._memory.anywhere()

    def _blind(self) -> Config | None:
        """Where there is no model yet, or its pool is used up: a child of a starting point or anything, by turns."""
        if self._rng.random() < 0.5:
            bred = self._memory.fresh(children(self._memory.space, self._memory.starts, LITTER, self._rng))
            if len(bred):
                return self._memory.take(bred[0])
        return self._memory.anywhere()

    def _promising(self) -> Config | None:
        known = int(np.isfinite(self._memory.losses).sum())
        if known < ENOUGH or self._features.scales == 0:
            return None
        if self._model is None or known >= self._refit_at:
            self._model = self._modelled(fit=known >= self._refit_at)
        if known >= self._refit_at:
            self._refit_at = max(known + 1, math.ceil(known * REFIT))
        if (found := self._model.choose()) is None:
            return None
        row, believed = found
        self._believed[row.tobytes()] = believed
        return self._memory.take(row)

    def _modelled(self, fit: bool) -> _Model:
        """A model of the trials that were measured, and of what is believed of those under way."""
        memory = self._memory
        losses = np.array(memory.losses)
        known = np.flatnonzero(np.isfinite(losses))
        if len(known) > LEARNED:  # the best half, and the latest
            best = known[np.argsort(losses[known], kind="stable")[: LEARNED // 2]]
            known = np.union1d(best, known[-(LEARNED // 2) :])
        rows, pool = np.array(memory.rows), self._pool()
        points = self._features.points(rows)
        if fit:
            self._scales.fit(points[known], _standard(losses[known])[0])
        usual = float(np.median(losses[known]))
        waiting = list(memory.under_way.values())
        believed = [self._believed.get(row.tobytes(), usual) for row in waiting]
        taken, expected = [*rows[known], *waiting], [*losses[known], *believed]
        chance = None
        if np.isnan(losses).any():
            worked = np.isfinite(losses[-LEARNED:])
            if fit:
                self._safe.fit(points[-LEARNED:], worked - HOPE)
            chance = _Chance(self._safe, points[-LEARNED:], worked, self._features.points(pool))
        return _Model(self._features, self._scales, pool, taken, expected, float(losses[known].min()), chance)

    def _pool(self) -> Rows:
        """The rows that may be asked next."""
        memory, space = self._memory, self._memory.space
        if self._whole is not None:
            return memory.fresh(self._whole)
        best = [memory.rows[i] for i in memory.best(BEST)]
        around = [space.near(row) for row in best]
        bred = children(space, best, BRED, self._rng)
        return memory.fresh(np.concatenate([*around, bred, space.draw(SAMPLED, self._rng)]))


class _Model:
    """What is known of a pool of rows: told of one more trial at a time, until its pool or its scales are too old."""

    def __init__(self, features: Features, scales: Scales, pool: Rows, taken: list[Rows], losses: list[float],
                 best: float, chance: _Chance | None) -> None:  # fmt: skip
        self._features, self._pool = features, pool
        self._points = features.points(pool)
        self._posterior = Posterior(scales, features.points(np.array(taken)), self._points)
        self._losses = losses  # of the rows taken, told or believed, in their order
        self._best = best  # of those told
        self._place = {row.tobytes(): i for i, row in enumerate(taken)}
        self._open = np.ones(len(pool), bool)
        self._chance = chance  # None while nothing failed

    def choose(self) -> tuple[Rows, float] | None:
        """The most promising row and the loss that it is believed to have; None where the pool is used up."""
        if not self._open.any():
            return None
        losses, middle, unit = _standard(np.array(self._losses))
        mean, spread = self._posterior.predict(losses)
        promise, open_ = _improvement(mean, spread, (self._best - middle) / unit), self._open
        if self._chance is not None:
            chance = self._chance.over_pool()
            likely = open_ & (chance >= UNLIKELY)
            promise, open_ = promise * chance, likely if likely.any() else open_
        at = int(np.where(open_, promise, -1.0).argmax())
        believed = float(mean[at]) * unit + middle
        self._take(self._pool[at], believed)
        return self._pool[at], believed

    def tell(self, row: Rows, loss: float) -> bool:
        """What became of a row; False where this is the first that failed, which asks for another model.

        One that failed stays believed, which keeps the model from promising much around it.
        """
        failed = math.isnan(loss)
        if self._chance is not None:
            self._chance.tell(self._features.points(row[None, :])[0], not failed)
        if failed:
            self._open &= (self._pool != row).any(1)
            return self._chance is not None
        self._best = min(self._best, loss)
        if (place := self._place.get(row.tobytes())) is None:
            self._take(row, loss)
        else:
            self._losses[place] = loss
        return True

    def _take(self, row: Rows, loss: float) -> None:
        self._open &= (self._pool != row).any(1)
        self._place[row.tobytes()] = len(self._losses)
        self._losses.append(loss)
        self._posterior.extend(self._features.points(row[None, :])[0])


class _Chance:
    """How likely the rows of a pool are to work, from where trials worked and where they failed."""

    def __init__(self, scales: Scales, points: Vector, worked: NDArray[np.bool_], pool: Vector) -> None:
        self._posterior = Posterior(scales, points, pool)
        self._worked = [float(w) for w in worked]

    def tell(self, point: Vector, worked: bool) -> None:
        self._posterior.extend(point)
        self._worked.append(float(worked))

    def over_pool(self) -> Vector:
        mean, _ = self._posterior.predict(np.array(self._worked) - HOPE)
        return np.clip(mean + HOPE, 0.0, 1.0)


def _standard(losses: Vector) -> tuple[Vector, float, float]:
    """Losses around zero with a spread of one, bad ones pulled in; and what brings them back."""
    best = losses.min()
    far = best + CLIPPED * max(float(np.median(losses) - best), 1e-3)
    near = np.where(losses > far, far + 0.1 * (losses - far), losses)
    middle, unit = float(near.mean()), float(near.std()) + 1e-9
    return (near - middle) / unit, middle, unit


# The normal distribution's integral, from a table: there is no vectorised one in numpy.
_GRID = np.linspace(-8.0, 8.0, 4001)
_BELOW = np.array([0.5 * math.erfc(-z / math.sqrt(2.0)) for z in _GRID])


def _improvement(mean: Vector, spread: Vector, best: float) -> Vector:
    """How far below `best` a row is expected to come, counting nothing where it stays above."""
    z = (best - mean) / spread
    improvement: Vector = spread * (z * np.interp(z, _GRID, _BELOW) + np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi))
    return improvement
