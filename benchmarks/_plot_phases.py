"""Where the seconds of a start go, as a picture: one bar for each command, cut into its phases, in SVG."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from benchmarks._plot import STYLE

WIDTH, LEFT, RIGHT, TOP, ROW, BAR = 760, 150, 70, 56, 74, 30
#: width of the legend's columns, and how many there are
COLUMN, COLUMNS = 180, 4
#: of the phases in their order; from the project's own teal to greys, told apart in light and dark
COLOURS = ("#7d8b94", "#b3bec5", "#1f7a8c", "#48a9bd", "#9ed2dc", "#c25b4e", "#e0a79f", "#d9b44a")
#: the smallest share of the longest bar that has room for its seconds
ROOM = 0.045

Phases = Mapping[str, float]


def drawn(title: str, found: Mapping[str, Phases]) -> str:
    """The picture; a bar's length is its seconds from start to exit."""
    longest = max(sum(phases.values()) for phases in found.values())
    scale = (WIDTH - LEFT - RIGHT) / longest
    names = list(dict.fromkeys(name for phases in found.values() for name in phases))
    colours = dict(zip(names, COLOURS, strict=False))
    legend = TOP + ROW * len(found)
    height = legend + 24 * -(-len(names) // COLUMNS) + 8
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{title}">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        f'<text class="title" x="12" y="24">{escape(title)}</text>',
    ]
    for place, (command, phases) in enumerate(found.items()):
        lines += _bar(command, phases, TOP + ROW * place, scale, colours, longest)
    for place, name in enumerate(names):
        x, y = 16 + COLUMN * (place % COLUMNS), legend + 24 * (place // COLUMNS)
        lines += [
            f'<rect x="{x}" y="{y}" width="12" height="12" rx="2" style="fill:{colours[name]}"/>',
            f'<text class="small" x="{x + 18}" y="{y + 11}">{escape(name)}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


def _bar(command: str, phases: Phases, top: int, scale: float, colours: Mapping[str, str], longest: float) -> list[str]:
    middle = top + BAR // 2 + 5
    lines = [f'<text x="{LEFT - 12}" y="{middle}" text-anchor="end">{escape(command)}</text>']
    x = float(LEFT)
    for name, seconds in phases.items():
        wide = seconds * scale
        lines.append(
            f'<rect x="{x:.1f}" y="{top}" width="{wide:.1f}" height="{BAR}" style="fill:{colours[name]}">'
            f"<title>{escape(name)}: {seconds:.1f} s</title></rect>"
        )
        if seconds >= longest * ROOM:
            at = f'x="{x + wide / 2:.1f}" y="{top + BAR + 16}"'
            lines.append(f'<text class="small" {at} text-anchor="middle">{seconds:.1f}</text>')
        x += wide
    lines.append(f'<text x="{x + 8:.1f}" y="{middle}">{sum(phases.values()):.1f} s</text>')
    return lines
