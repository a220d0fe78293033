"""What a comparison has found: medians, as a table, and what must hold of them."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

from benchmarks._processes import Cost

#: by contender: `s`, `cpu_s`, `peak_mib`
Medians = Mapping[str, Mapping[str, float]]

#: penstock against COPY, against the bare script, against dlt's best and rustream (how many times as fast), and against
#: the CPU time of Spark's JDBC reader
COPY, ADBC, DLT, RUSTREAM, JDBC = 1.4, 0.95, 1.5, 6.0, 0.7
PEAK_MIB = 1536
#: from so many rows on, the start of Spark has paid
MANY = 20_000_000
WARM = ("penstock_files_warm", "penstock_lake_warm")
COLD = ("penstock_files_cold", "penstock_lake_cold")
PEERS = ("rustream", "dlt_connectorx", "dlt_connectorx_stream", "dlt_pyarrow", "spark_jdbc")


def named(known: Sequence[str]) -> Callable[[str], list[str]]:
    """How contenders are chosen on the command line: names with commas between."""

    def read(text: str) -> list[str]:
        names = text.split(",")
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"no contender is called {unknown[0]}; they are {', '.join(known)}")
        return [name for name in known if name in names]

    return read


def medians(costs: Mapping[str, Sequence[Cost]]) -> Medians:
    return {
        name: {
            "s": round(statistics.median(cost.seconds for cost in each), 3),
            "cpu_s": round(statistics.median(cost.cpu for cost in each), 2),
            "peak_mib": round(statistics.median(cost.peak for cost in each), 1),
        }
        for name, each in costs.items()
    }


def table(found: Medians, base: str | None = None) -> str:
    """One line for each; with `base`, also how many times its seconds."""
    lines = []
    for name, each in found.items():
        line = f"{name:<22} {each['s']:9.3f} s {each['cpu_s']:8.2f} CPU s {each['peak_mib']:8.0f} MiB"
        if base is not None and base in found:
            line += f" {each['s'] / found[base]['s']:7.2f} times {base}"
        lines.append(line)
    return "\n".join(lines)


def verdicts(rows: int, found: Medians) -> list[str]:
    """What must hold, and whether it does; without what cannot be said of those that took part."""
    return ["must hold:", *_lines(rows, found)] if any(name in found for name in WARM + COLD) else []


def _lines(rows: int, found: Medians) -> Iterator[str]:
    dlt = [name for name in found if name.startswith("dlt_")]
    for name in (name for name in WARM if name in found):
        seconds = found[name]["s"]
        if "copy" in found:
            yield most(f"{name}, times copy", seconds / found["copy"]["s"], COPY)
        if "adbc" in found:
            yield most(f"{name}, times adbc", seconds / found["adbc"]["s"], ADBC)
        if dlt:
            best = min(dlt, key=lambda each: found[each]["s"])
            yield least(f"{name}, times as fast as {best}", found[best]["s"] / seconds, DLT)
        if "rustream" in found:
            yield least(f"{name}, times as fast as rustream", found["rustream"]["s"] / seconds, RUSTREAM)
        if "spark_jdbc" in found:
            yield most(f"{name}, CPU, times spark_jdbc", found[name]["cpu_s"] / found["spark_jdbc"]["cpu_s"], JDBC)
    for name in (name for name in COLD if name in found and rows >= MANY):
        for peer in (peer for peer in PEERS if peer in found):
            yield least(f"{name}, times as fast as {peer}", found[peer]["s"] / found[name]["s"], 1.0)
    for name in (name for name in WARM + COLD if name in found):
        yield _line(f"{name}, peak MiB", found[name]["peak_mib"], f"< {PEAK_MIB}", lambda it: it < PEAK_MIB, ".0f")


def most(what: str, value: float, bound: float) -> str:
    return _line(what, value, f"≤ {bound}", lambda it: it <= bound)


def least(what: str, value: float, bound: float) -> str:
    return _line(what, value, f"≥ {bound}", lambda it: it >= bound)


def _line(what: str, value: float, bound: str, holds: Callable[[float], bool], form: str = ".2f") -> str:
    return f"  {'yes' if holds(value) else 'NO ':<3}  {what:<52} {value:{form}}  ({bound})"
