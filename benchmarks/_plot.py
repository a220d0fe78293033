"""A comparison as a picture: one bar for each contender, in SVG."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from benchmarks._verdict import Medians

WIDTH, LEFT, RIGHT, TOP, ROW, BAR = 760, 230, 190, 58, 30, 18
NAMES: Mapping[str, str] = {
    "copy": "one bare COPY, thrown away",
    "adbc": "bare ADBC script",
    "penstock_files_warm": "penstock → files, warm",
    "penstock_lake_warm": "penstock → lake, warm",
    "penstock_files_cold": "penstock → files, cold command",
    "penstock_lake_cold": "penstock → lake, cold command",
    "rustream": "rustream (float8)",
    "dlt_connectorx": "dlt, connectorx",
    "dlt_connectorx_stream": "dlt, connectorx streaming",
    "dlt_pyarrow": "dlt, pyarrow",
    "spark_jdbc": "Spark JDBC, warm",
}
STYLE = """\
text { font-family: -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; font-size: 13px; fill: #3a4750; }
.title { font-size: 16px; font-weight: 600; }
.small { font-size: 12px; fill: #6b7780; }
.bar { fill: #a9b4bb; }
.ours { fill: #1f7a8c; }
.floor { stroke: #c25b4e; stroke-dasharray: 4 3; }
@media (prefers-color-scheme: dark) {
  text { fill: #d2d6dc; } .small { fill: #99a1a8; } .bar { fill: #66727a; } .ours { fill: #48a9bd; }
}
"""


def drawn(rows: int, found: Medians) -> str:
    """The picture; bars are seconds, the dashed line is COPY."""
    longest = max(each["s"] for each in found.values())
    scale = (WIDTH - LEFT - RIGHT) / longest
    height = TOP + ROW * len(found) + 12
    title = f"{rows:,} rows from Postgres to Parquet: seconds"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{title}">',
        f"<title>{title}</title>",
        f"<style>{STYLE}</style>",
        f'<text class="title" x="12" y="24">{title}</text>',
        '<text class="small" x="12" y="44">medians; CPU and peak memory of the client, all its processes</text>',
    ]
    for place, (name, each) in enumerate(found.items()):
        lines += _row(name, each, TOP + ROW * place, scale)
    if "copy" in found:
        x = LEFT + found["copy"]["s"] * scale
        lines.append(f'<line class="floor" x1="{x:.1f}" y1="{TOP - 4}" x2="{x:.1f}" y2="{height - 8}"/>')
    return "\n".join([*lines, "</svg>", ""])


def _row(name: str, each: Mapping[str, float], top: int, scale: float) -> list[str]:
    kind = "ours" if name.startswith("penstock") else "bar"
    wide = max(1.0, each["s"] * scale)
    middle = top + BAR - 4
    said = f"{each['s']:.1f} s · {each['cpu_s']:.0f} CPU s · {each['peak_mib']:,.0f} MiB"
    return [
        f'<text x="{LEFT - 10}" y="{middle}" text-anchor="end">{escape(NAMES.get(name, name))}</text>',
        f'<rect class="{kind}" x="{LEFT}" y="{top}" width="{wide:.1f}" height="{BAR}" rx="2"/>',
        f'<text class="small" x="{LEFT + wide + 6:.1f}" y="{middle}">{said}</text>',
    ]
