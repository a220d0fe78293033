"""`penstock.connector` has what connectors need, and keeps it: docs/compatibility.md promises that no name is lost."""

from __future__ import annotations

import dataclasses
import inspect
import subprocess
import sys
import types
import typing
from collections.abc import Iterator

import pytest

from penstock import connector, errors, ports
from penstock.core import documents

#: the names of release 0.1; add new ones, and never remove one without the steps of docs/compatibility.md
_NAMES = """
    NOTHING_LOST UNTOUCHED Archiving Awaiting Backoff Budget Column Columns CommitUnclear ComparedColumn
    ComparedColumns ComparedRows ComparingSink ComparingSource ConnectionFailed Content Context Continuing Decimal
    DiscoveredStream Discovering Document Estimating ExplainingSink ExplainingSource Fixed Gathering
    GatheringRepairs Held InputError Key Keyed Kind List Map Mark Mover NoProbe NoSpark NoSpools NotComparable
    NotOffered Noticing OptionsModel Origin OutOfTime Outcome Part PenstockError Plain Planned Position Preparing
    Probe Proposing
    Quarantined Quarantining Range Reader Reading Receipt Recovering Releasing Remaining Remark Report Resuming
    Retry Rewinding Seal Sealing Sink SinkComparison Slice SliceRefused Source Spark Spool Spools StreamFailed
    StreamInfo StreamRefused StreamStopped Struct Summary Sweeping Type Verdict Watch Withdrawing Writer
    arrow_schema canonical digest iterate_tries not_comparable parse parse_type pause verdict
"""
FIRST_RELEASE = frozenset(_NAMES.split())
#: of the ports, what only the engine and the stores need
INTERNAL = frozenset(
    {"Change", "Clock", "Holder", "Lease", "Owner", "RunRecord", "Store", "StreamState", "WaitReporting", "Wrapping"}
)


def test_every_name_of_the_first_release_is_there() -> None:
    assert set(connector.__all__) >= FIRST_RELEASE, "removed: follow docs/compatibility.md, then change the list"
    assert set(connector.__all__) == FIRST_RELEASE, "added: add it to the list too, so that it is guarded"
    assert [name for name in connector.__all__ if not hasattr(connector, name)] == []
    assert list(connector.__all__) == sorted(connector.__all__, key=_as_ruff_sorts)


def _as_ruff_sorts(name: str) -> tuple[int, str]:
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


def test_every_port_of_a_source_or_a_sink_is_there() -> None:
    public = {name for name in ports.__all__ if inspect.isclass(getattr(ports, name))}
    assert public - INTERNAL - set(connector.__all__) == set()


def named_types(owner: type) -> Iterator[type]:
    """Every class that an author meets in the methods and fields of a class."""
    elsewhere = {"Json": documents.Json, "pa": types.SimpleNamespace(RecordBatchReader=object)}
    methods = [each for name, each in inspect.getmembers(owner, inspect.isfunction) if not name.startswith("_")]
    hints = [
        typing.get_type_hints(each, {**vars(sys.modules[each.__module__]), **elsewhere}) for each in (owner, *methods)
    ]
    waiting = [hint for each in hints for hint in each.values()]
    while waiting:
        hint = waiting.pop()
        waiting += [each for each in typing.get_args(hint) if not isinstance(each, list)]
        waiting += [inner for each in typing.get_args(hint) if isinstance(each, list) for inner in each]
        if inspect.isclass(hint) and hint.__module__.startswith("penstock."):
            yield hint


@pytest.mark.parametrize("name", [name for name in connector.__all__ if inspect.isclass(getattr(connector, name))])
def test_every_type_in_a_signature_can_be_imported_from_there(name: str) -> None:
    owner = getattr(connector, name)
    if not (getattr(owner, "_is_protocol", False) or dataclasses.is_dataclass(owner)):
        return
    known = {getattr(connector, each) for each in connector.__all__}
    internal = {"Drift", "HistoryLimits"}
    assert {each.__name__ for each in named_types(owner) if each not in known} - internal == set()


def test_every_error_that_a_connector_raises_is_there() -> None:
    raised_by_penstock = {"ConfigError", "Interrupted", "LeaseLost", "PipelineHeld", "StoreRefused"}
    every = {
        name
        for name, each in inspect.getmembers(errors, inspect.isclass)
        if issubclass(each, errors.PenstockError) and each.__module__ == errors.__name__
    }
    assert every - raised_by_penstock - set(connector.__all__) == set()


def test_importing_it_loads_neither_spark_nor_arrow() -> None:
    program = "import sys, penstock.connector; print(sorted({'pyarrow', 'pyspark', 'psycopg'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
