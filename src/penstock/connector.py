"""Everything that the author of a source or a sink imports. Stable: docs/compatibility.md says what may change.

A connector is a module with `Options`, `StreamOptions` and `build(options, streams, context)`. It joins by an entry
point of the group `penstock.sources` or `penstock.sinks`. The obligations are in the docstrings of `Source`, `Sink`,
`Reader` and `Writer`; the suites in `penstock.testing.contracts` test them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from penstock.core.comparing import Summary
from penstock.core.content import Column, Columns, Content
from penstock.core.documents import Document, canonical, digest, parse
from penstock.core.marks import Mark, Position
from penstock.core.outcome import Outcome
from penstock.core.ranges import Key, Range
from penstock.core.retry import Backoff, Retry
from penstock.core.slices import Kind, Part, Receipt, Seal, Slice, Verdict, verdict
from penstock.core.types import Decimal, Fixed, List, Map, Plain, Struct, Type, parse_type
from penstock.errors import (
    NOTHING_LOST,
    UNTOUCHED,
    CommitUnclear,
    ConnectionFailed,
    InputError,
    NotComparable,
    NotOffered,
    OutOfTime,
    PenstockError,
    SliceRefused,
    StreamFailed,
    StreamRefused,
    StreamStopped,
)
from penstock.links.pause import iterate_tries, pause
from penstock.links.watch import Watch
from penstock.ports import (
    Archiving,
    Awaiting,
    Budget,
    ComparedColumn,
    ComparedColumns,
    ComparedRows,
    ComparingSink,
    ComparingSource,
    Context,
    Continuing,
    DiscoveredStream,
    Discovering,
    Estimating,
    ExplainingSink,
    ExplainingSource,
    Gathering,
    GatheringRepairs,
    Held,
    Keyed,
    Mover,
    NoProbe,
    NoSpark,
    NoSpools,
    Noticing,
    Origin,
    Planned,
    Preparing,
    Probe,
    Proposing,
    Quarantined,
    Quarantining,
    Reader,
    Reading,
    Recovering,
    Releasing,
    Remaining,
    Remark,
    Report,
    Resuming,
    Rewinding,
    Sealing,
    Sink,
    SinkComparison,
    Source,
    Spark,
    Spool,
    Spools,
    StreamInfo,
    Sweeping,
    Withdrawing,
    Writer,
    not_comparable,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "NOTHING_LOST",
    "UNTOUCHED",
    "Archiving",
    "Awaiting",
    "Backoff",
    "Budget",
    "Column",
    "Columns",
    "CommitUnclear",
    "ComparedColumn",
    "ComparedColumns",
    "ComparedRows",
    "ComparingSink",
    "ComparingSource",
    "ConnectionFailed",
    "Content",
    "Context",
    "Continuing",
    "Decimal",
    "DiscoveredStream",
    "Discovering",
    "Document",
    "Estimating",
    "ExplainingSink",
    "ExplainingSource",
    "Fixed",
    "Gathering",
    "GatheringRepairs",
    "Held",
    "InputError",
    "Key",
    "Keyed",
    "Kind",
    "List",
    "Map",
    "Mark",
    "Mover",
    "NoProbe",
    "NoSpark",
    "NoSpools",
    "NotComparable",
    "NotOffered",
    "Noticing",
    "OptionsModel",
    "Origin",
    "OutOfTime",
    "Outcome",
    "Part",
    "PenstockError",
    "Plain",
    "Planned",
    "Position",
    "Preparing",
    "Probe",
    "Proposing",
    "Quarantined",
    "Quarantining",
    "Range",
    "Reader",
    "Reading",
    "Receipt",
    "Recovering",
    "Releasing",
    "Remaining",
    "Remark",
    "Report",
    "Resuming",
    "Retry",
    "Rewinding",
    "Seal",
    "Sealing",
    "Sink",
    "SinkComparison",
    "Slice",
    "SliceRefused",
    "Source",
    "Spark",
    "Spool",
    "Spools",
    "StreamFailed",
    "StreamInfo",
    "StreamRefused",
    "StreamStopped",
    "Struct",
    "Summary",
    "Sweeping",
    "Type",
    "Verdict",
    "Watch",
    "Withdrawing",
    "Writer",
    "arrow_schema",
    "canonical",
    "digest",
    "iterate_tries",
    "not_comparable",
    "parse",
    "parse_type",
    "pause",
    "verdict",
]


class OptionsModel(BaseModel):
    """The base of a connector's options: unknown keys are refused, values cannot be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def arrow_schema(columns: Columns) -> pa.Schema:
    """Return the Arrow schema in which batches carry these columns."""
    # Imported here: `penstock check` of a file need not load pyarrow.
    from penstock.links import arrow_types

    return arrow_types.arrow_schema(columns)
