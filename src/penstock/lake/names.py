"""Names that penstock gives to things in a lake table: properties, summary keys, internal columns, branches, files."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

from penstock.core.documents import digest

#: the column that holds a row's place in the one order
SEQ = "_ingest_seq"
#: the column that marks a row as a tombstone (`_deleted` is a name that Iceberg keeps for itself)
DELETED = "_tombstone"
#: columns that never leave the lake
INTERNAL = (SEQ, DELETED)
#: properties of every table: readers find rows by the bounds of SEQ, and Iceberg keeps them for 100 columns only
METRICS = {f"write.metadata.metrics.column.{SEQ}": "full"}

HEAD = "penstock.head"
FLOOR = "penstock.floor"
TURN = "penstock.turn"
INSPECTED = "penstock.inspected"
#: files of unknown origin that an operator accepted
ACCEPTED = "penstock.accepted"
#: why no reader can go on, as the last reader recorded it
STOPPED = "penstock.stopped"
MODE = "penstock.mode"
#: another program created the table
ADOPTED = "penstock.adopted"
KEY = "penstock.key"
#: the snapshot with the side data of a state table, which belongs to main; also in the summaries of its snapshots
SIDE = "penstock.side"
#: in the summary of such a snapshot: the form of its files
SIDE_FORM = "penstock.side-form"
CHAIN = "penstock.chain"
#: contents of slices by fingerprint: stored once, not in every snapshot
CONTENT = "penstock.content"
READER = "penstock.reader"
#: in a snapshot's summary: what penstock created it for
KIND = "penstock.kind"

#: Iceberg's own property: how a MERGE is written. Ours needs this one: it tells rows by their files
MERGE_MODE = "write.merge.mode"
ON_READ = "merge-on-read"

_BRANCH = re.compile(r"penstock_(?P<stream>[0-9a-f]{12})_(?P<number>\d+)_(?P<attempt>[0-9a-zA-Z]+)")
_FILE = re.compile(r"ps-(?P<stream>[0-9a-f]{12})-(?P<number>\d+)-(?P<attempt>[0-9a-zA-Z]+)-")


def encode(name: str) -> str:
    """Encode a name without dots, so that names can be joined by dots."""
    return quote(name, safe="").replace(".", "%2E")


def chain_property(pipeline: str, stream: str) -> str:
    return f"{CHAIN}.{encode(pipeline)}.{encode(stream)}"


def content_property(content: str) -> str:
    return f"{CONTENT}.{digest(content)}"


def reader_property(pipeline: str, stream: str) -> str:
    return f"{READER}.{encode(pipeline)}.{encode(stream)}"


def parse_property(property_: str, prefix: str) -> tuple[str, str] | None:
    """The pipeline and stream that a property of this kind is about; None: it is not of this kind."""
    beginning, _, rest = property_.partition(f"{prefix}.")
    pipeline, dot, stream = rest.partition(".")
    if beginning or not dot:
        return None
    return unquote(pipeline), unquote(stream)


def stream_tag(pipeline: str, stream: str) -> str:
    """Twelve hexadecimal digits for one stream of one pipeline, for names that must be short."""
    return digest(pipeline, stream)[:12]


def branch_name(pipeline: str, stream: str, number: int, attempt: str) -> str:
    return f"penstock_{stream_tag(pipeline, stream)}_{number}_{attempt}"


def file_stem(pipeline: str, stream: str, number: int, attempt: str) -> str:
    return f"ps-{stream_tag(pipeline, stream)}-{number}-{attempt}"


def parse_branch(name: str) -> tuple[str, int, str] | None:
    """The stream's tag, slice number and attempt that a branch of ours is for."""
    found = _BRANCH.fullmatch(name)
    return (found["stream"], int(found["number"]), found["attempt"]) if found else None


def parse_file_name(name: str) -> tuple[str, int, str] | None:
    """The stream's tag, slice number and attempt that a data file of ours was written by."""
    found = _FILE.match(name)
    return (found["stream"], int(found["number"]), found["attempt"]) if found else None
