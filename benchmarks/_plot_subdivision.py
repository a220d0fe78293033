"""Subdivision as pictures, in SVG: the requests and rounds of both rules, and one small run, page by page."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from benchmarks import _list_api as api
from benchmarks._plot import STYLE

WIDTH, LEFT, GAP, TOP, ROW = 760, 190, 34, 78, 18
#: between the rows of one number of workers and those of the next
GROUP_GAP = 10
PANEL = (WIDTH - LEFT - GAP - 20) / 2
COLOURS = ("#1f7a8c", "#c98a2b", "#7d5ba6", "#5c8a4a")
MORE_STYLE = """\
.dot { fill: #a9b4bb; fill-opacity: .75; } .mine { fill: #1f7a8c; fill-opacity: .75; }
.rule { stroke: #a9b4bb; stroke-opacity: .5; }
@media (prefers-color-scheme: dark) { .dot { fill: #66727a; } .mine { fill: #48a9bd; } }
"""


@dataclass(frozen=True, slots=True)
class Dots:
    """The figures of one case, as shares of what is allowed."""

    shape: str
    workers: int
    requests: float
    halving_requests: float
    rounds: float
    halving_rounds: float


def draw_figures(dots: Sequence[Dots]) -> str:
    """One row for each distribution and number of workers, one dot for each size."""
    keys = list(dict.fromkeys((each.workers, each.shape) for each in sorted(dots, key=lambda each: each.workers)))
    places: dict[tuple[int, str], float] = {}
    y = float(TOP)
    for number, key in enumerate(keys):
        y += GROUP_GAP if number and key[0] != keys[number - 1][0] else 0
        places[key] = y
        y += ROW
    bottom = y
    lines = _head("What parallel reading costs: penstock and the published rule", bottom + 34)
    lines.append(
        '<text class="small" x="12" y="44">as shares of our bounds; a dot for each size, from 0 to 10,000 pages</text>'
    )
    lines.append(f'<text class="small" x="{LEFT - 12}" y="{TOP - 14}" text-anchor="end">distribution, workers</text>')
    panels = (
        ("requests", [(each, each.requests, each.halving_requests) for each in dots]),
        ("rounds", [(each, each.rounds, each.halving_rounds) for each in dots]),
    )
    for number, (name, figures) in enumerate(panels):
        most = max(max(ours, halving) for _, ours, halving in figures) + 0.05
        x0 = LEFT + number * (PANEL + GAP)
        scale = PANEL / most
        lines.append(f'<text class="small" x="{x0:.0f}" y="{TOP - 14}">{name}</text>')
        for each, ours, halving in figures:
            at = places[each.workers, each.shape] + 8
            for kind, value, shift in (("dot", halving, 3), ("mine", ours, -3)):
                lines.append(f'<circle class="{kind}" cx="{x0 + value * scale:.1f}" cy="{at + shift:.0f}" r="3"/>')
        for tick in (0.0, 0.5, 1.5, 2.0, 2.5):
            if tick > most:
                break
            x = x0 + tick * scale
            lines.append(f'<line class="rule" x1="{x:.1f}" y1="{TOP - 6}" x2="{x:.1f}" y2="{bottom:.0f}"/>')
            lines.append(f'<text class="small" x="{x:.1f}" y="{bottom + 18:.0f}" text-anchor="middle">{tick}</text>')
        x = x0 + scale
        lines.append(f'<line class="floor" x1="{x:.1f}" y1="{TOP - 6}" x2="{x:.1f}" y2="{bottom:.0f}"/>')
        lines.append(f'<text class="small" x="{x:.1f}" y="{bottom + 18:.0f}" text-anchor="middle">1</text>')
    for (workers, shape), at in places.items():
        label = escape(f"{shape}, {workers}")
        lines.append(f'<text class="small" x="{LEFT - 12}" y="{at + 12:.0f}" text-anchor="end">{label}</text>')
    lines += _legend([("mine", "penstock"), ("dot", "halving"), ("floor", "our bound")])
    return "\n".join([*lines, "</svg>", ""])


def draw_example() -> str:
    """Four workers on thirty pages, most of them in one burst: every request as a bar, one line for each round."""
    trace: list[api.Fetched] = []
    times = _example_times()
    cost = api.read_on_demand(times, 4, trace)
    rounds = cost.rounds
    height = TOP + 16 * rounds + 58
    title = f"{len(times) // api.PAGE} pages, 4 workers: {cost.requests} requests in {rounds} rounds"
    lines = _head(title, height)
    lines.append(
        '<text class="small" x="12" y="44">each bar is a page and the time that it covers; '
        "a colour is a worker; pages are read from right (newest) to left</text>"
    )
    scale = (WIDTH - 110) / api.YEAR
    for page in trace:
        x, width = 90 + page.gte * scale, max(2.0, (page.lt - page.gte) * scale - 1)
        y = TOP - 12 + 16 * (page.round - 1)
        lines.append(
            f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="11" rx="2" fill="{COLOURS[page.worker]}"'
            f' fill-opacity="{0.35 if page.records < 10 else 0.9}"/>'
        )
    for number in range(rounds):
        lines.append(
            f'<text class="small" x="80" y="{TOP - 2 + 16 * number}" text-anchor="end">round {number + 1}</text>'
        )
    y = TOP + 16 * rounds + 22
    lines.append(f'<text class="small" x="80" y="{y}" text-anchor="end">records</text>')
    for low, high, share in _histogram(times, 130):
        bar = max(1.0, 26 * share)
        lines.append(
            f'<rect class="bar" x="{90 + low * scale:.1f}" y="{y - bar:.1f}" width="{(high - low) * scale - 0.5:.1f}"'
            f' height="{bar:.1f}"/>'
        )
    lines.append(f'<text class="small" x="90" y="{y + 18}">oldest</text>')
    lines.append(f'<text class="small" x="{WIDTH - 20}" y="{y + 18}" text-anchor="end">newest</text>')
    return "\n".join([*lines, "</svg>", ""])


def _example_times() -> list[int]:
    rng = random.Random(5)
    burst = [int(api.YEAR * (0.38 + 0.08 * rng.random())) for _ in range(18 * api.PAGE)]
    return sorted([*burst, *(rng.randrange(api.YEAR) for _ in range(12 * api.PAGE))])


def _histogram(times: Iterable[int], bins: int) -> list[tuple[float, float, float]]:
    counts = [0] * bins
    for time in times:
        counts[time * bins // api.YEAR] += 1
    width = api.YEAR / bins
    return [(n * width, (n + 1) * width, count / max(counts)) for n, count in enumerate(counts) if count]


def _head(title: str, height: float) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{title}">',
        f"<title>{title}</title>",
        f"<style>{STYLE}{MORE_STYLE}</style>",
        f'<text class="title" x="12" y="24">{title}</text>',
    ]


def _legend(entries: Sequence[tuple[str, str]]) -> list[str]:
    lines = []
    for number, (kind, name) in enumerate(entries):
        x = WIDTH - 270 + 90 * number
        if kind == "floor":
            lines.append(f'<line class="floor" x1="{x}" y1="33" x2="{x}" y2="47"/>')
        else:
            lines.append(f'<circle class="{kind}" cx="{x}" cy="40" r="4"/>')
        lines.append(f'<text class="small" x="{x + 9}" y="44">{name}</text>')
    return lines
