"""Curves as an SVG: what each strategy has reached on average, over the number of evaluations on a logarithmic axis."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

WIDTH, HEIGHT = 860, 500
LEFT, RIGHT, TOP, BOTTOM = 70, 230, 64, 56
LOWEST = 0.5
COLOURS = {
    "default": "#d1495b", "evolution": "#2e86ab", "annealing": "#3c8d5a", "random": "#8a8f98",
    "Kernel Tuner simulated_annealing": "#e09f3e", "Kernel Tuner genetic_algorithm": "#8e6bb0",
}  # fmt: skip
OTHERS = ("#444444", "#00798c", "#9c6644", "#6a994e")
FONT = 'font-family="Inter, Helvetica, Arial, sans-serif"'


def plotted(means: Mapping[str, Any], spaces: int) -> str:
    """The picture as text. A dashed line is a rival's."""
    budget = max(len(curve) for curve in means.values())
    ends = _spread({name: _y(float(curve[-1])) for name, curve in means.items()})
    parts = [_frame(budget, spaces)]
    spare = iter(OTHERS * len(means))
    for name, curve in means.items():
        colour = COLOURS.get(name) or next(spare)
        dash = ' stroke-dasharray="6 4"' if name.startswith("Kernel Tuner") else ""
        points = [(_x(i + 1, budget), _y(float(v))) for i, v in enumerate(curve) if v >= LOWEST]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        wide = 3.2 if name == "default" else 2.0
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{wide}"{dash}/>')
        parts.append(
            f'<text x="{WIDTH - RIGHT + 10}" y="{ends[name] + 4:.1f}" fill="{colour}" {FONT} font-size="13"'
            f' font-weight="{600 if name == "default" else 400}">{_label(name)} {float(curve[-1]):.3f}</text>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _label(name: str) -> str:
    return name.replace("Kernel Tuner simulated_annealing", "KT annealing").replace(
        "Kernel Tuner genetic_algorithm", "KT genetic"
    )


def _frame(budget: int, spaces: int) -> str:
    parts = [
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="28" {FONT} font-size="17" font-weight="600" fill="#222">Optimum ÷ best found, mean over '
        f"{spaces} spaces</text>",
        f'<text x="{LEFT}" y="47" {FONT} font-size="12" fill="#666">1.0 is the fastest configuration of the space; '
        "failed configurations count as evaluations</text>",
    ]
    for share in (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0):
        y = _y(share)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e6e6e6"/>')
        parts.append(
            f'<text x="{LEFT - 10}" y="{y + 4:.1f}" text-anchor="end" {FONT} font-size="12" fill="#555">{share:g}</text>'
        )
    for count in (c for c in (1, 2, 5, 10, 25, 50, 100, 220, 500, 1000) if c <= budget):
        x = _x(count, budget)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="#f0f0f0"/>')
        parts.append(
            f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle" {FONT} font-size="12" fill="#555">{count}</text>'
        )
    parts.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 14}" text-anchor="middle" {FONT} font-size="13"'
        ' fill="#333">evaluations</text>'
    )
    return "\n".join(parts)


def _x(count: int, budget: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * math.log(count) / math.log(budget)


def _y(share: float) -> float:
    """The distance from the optimum counts, so the axis is stretched towards 1."""
    stretched = math.log((1 - LOWEST + 0.03) / (1 - share + 0.03)) / math.log((1 - LOWEST + 0.03) / 0.03)
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * stretched


def _spread(wanted: Mapping[str, float], gap: float = 17.0) -> dict[str, float]:
    """The labels' heights, moved apart where they would overlap."""
    placed, last = dict[str, float](), -math.inf
    for name, y in sorted(wanted.items(), key=lambda item: item[1]):
        last = placed[name] = max(y, last + gap)
    return placed
