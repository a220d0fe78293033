"""Runs the fold of a slice in Spark: reads its documents, proves what needs no fold, folds the rest, writes rows."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any

from penstock.core.ops import Layout
from penstock.core.outcome import Outcome
from penstock.core.types import Plain
from penstock.lake import names
from penstock.lake.folding import side_data
from penstock.lake.folding.documents import OPS, RAW, read_ops
from penstock.lake.folding.fold import Clears, Fold, key_text
from penstock.lake.folding.new_entities import OWN_TEXT, Written
from penstock.lake.folding.proof import clash, find_doubts, keys_with
from penstock.lake.folding.reading import PartReport, PartsReader, choose_parts, read_with, take_reports
from penstock.lake.folding.side_data import current_rows, kind_of, read_side
from penstock.lake.folding.staging import StagedPart
from penstock.lake.folding.summary import Summary, expand_barriers, summarize
from penstock.lake.folding.values import literal
from penstock.lake.folding.writing import PREFIX, RECEIPTS, FoldWriter, WrittenPart, write_with
from penstock.lake.merge_statement import quote
from penstock.lake.parquet import FileLayout, remove
from penstock.lake.writing import NUMBERS_PER_PART

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyspark.sql import DataFrame


#: rows of ops of a slice whose entities are looked up by their keys
FEW_OPS = 1_000


@dataclass
class Counts:
    """What became of the ops of a slice."""

    ops: int = 0
    #: ops that came before their entity
    early: int = 0
    quarantined: int = 0
    #: documents with such ops
    bad_documents: int = 0
    #: entities whose early ops were dropped, because they had waited too long
    dropped: int = 0

    def outcome(self, documents: int) -> Outcome:
        """What became of the documents: one of which an op is in quarantine counts as quarantined."""
        return Outcome(updated=documents - self.bad_documents, quarantined=self.bad_documents)

    def lines(self) -> list[str]:
        found = []
        if self.early:
            found.append(f"{self.early:,} ops came before their entity; they are kept until it comes")
        if self.dropped:
            found.append(
                f"early ops of {self.dropped:,} entities were dropped: they had waited longer than `early_for`"
            )
        return found


@dataclass
class SideFiles:
    """The side data before a slice."""

    snapshot: int | None
    files: list[DataFile]
    #: whether the slice rewrites all of it
    is_rewritten: bool = False

    def __post_init__(self) -> None:
        self.is_rewritten = len(self.kept) >= side_data.MAX_FILES

    @cached_property
    def kept(self) -> list[str]:
        """The files with early ops and with values of fan-outs."""
        return [file.file_path for file in self.files if kind_of(file) != "bad"]

    @property
    def rows(self) -> int:
        """Rows in those files, valid or not."""
        return sum(file.record_count for file in self.files if kind_of(file) != "bad")

    @property
    def has_early(self) -> bool:
        return any(kind_of(file) == "early" for file in self.files)


@dataclass(frozen=True)
class SliceRows:
    """The documents of a slice, as they were read."""

    reports: Sequence[PartReport]
    #: `documents.OPS`; None: nothing is left to fold
    ops: DataFrame | None
    #: of these
    others: Summary

    @property
    def summary(self) -> Summary:
        """Of all documents."""
        return self.others.with_new(self.new)

    @cached_property
    def new(self) -> list[Written]:
        """Entities that were written already."""
        return [report.written for report in self.reports if report.written is not None]

    @property
    def failed(self) -> bool:
        return any(report.failed for report in self.reports)


@dataclass(frozen=True)
class FoldResult:
    """What a slice has written."""

    new: Sequence[Written]
    changed: Sequence[WrittenPart]
    #: the first number of what has changed
    start: int


@dataclass(frozen=True)
class FoldRun:
    """One fold of one slice."""

    session: Any
    layout: Layout
    files: FileLayout
    parts: Sequence[StagedPart]
    #: the table's branch, as Spark names it
    branch: str
    #: the data files that it shows
    current: Callable[[], Sequence[DataFile]]
    #: whether it shows no row
    is_empty: bool
    side: SideFiles
    #: beginning of every file's name: stream, slice number, attempt
    name: str
    #: the first number of the slice
    start: int
    #: the slice's number
    number: int
    early_for: int | None
    counts: Counts

    def run(self) -> FoldResult:
        rows = self._read_slice(choose_parts(self.layout, self.parts, self.side.rows))
        if rows.failed or (rows.new and not self._is_proven(rows)):
            self._discard(rows.new)
            rows = self._read_slice(frozenset())
        self.counts.ops = rows.summary.ops
        self.counts.quarantined = rows.summary.quarantined
        start = self.start + (len(self.parts) * NUMBERS_PER_PART if rows.new else 0)
        if self._needs_no_fold(rows):
            self.side.is_rewritten = False
            return FoldResult(rows.new, [], start)
        return FoldResult(rows.new, self._fold(rows, FoldWriter(self.files, self.name, start, self.number)), start)

    def _needs_no_fold(self, rows: SliceRows) -> bool:
        """Whether what is not written yet changes nothing. A first load begins with a `clear` of an empty table."""
        if rows.ops is None:
            return self.early_for is None or not self.side.has_early
        return self.is_empty and not self.side.kept and rows.others.counts.keys() <= {"c", "k"}

    # ------------------------------------------------------------ reading

    def _read_slice(self, writing: frozenset[int]) -> SliceRows:
        beside = tuple(self.side.kept) if writing else ()
        reader = PartsReader(self.files, self.layout, self.parts, writing, self.name, self.start, beside)
        raw = self._read(read_with(reader), len(self.parts), RAW).localCheckpoint()
        reports = take_reports(raw)
        ops, summary = None, Summary({}, (), ())
        if any(report.rows for report in reports):
            is_open = any(report.open for report in reports)
            ops = read_ops(raw.where("t <> '!'"), self.layout, is_open=is_open).localCheckpoint()
            summary = summarize(ops)
        return SliceRows(reports, ops, summary)

    def _read(self, reader: Any, count: int, schema: str) -> DataFrame:
        if not count:
            frame: DataFrame = self.session.createDataFrame([], schema)
            return frame
        made: DataFrame = self.session.range(0, count, 1, count).mapInArrow(reader, schema)
        return made

    # ------------------------------------------------------------ entities that need no fold

    def _is_proven(self, rows: SliceRows) -> bool:
        """Whether the entities that were written are new, and nothing else in the slice concerns them."""
        key = self.layout.key[0].name
        doubts = find_doubts(rows.new, rows.others, self.current, self.files.schema, key)
        if not doubts:
            return doubts is not None
        others = []
        if "table" in doubts:
            others.append(self._table().selectExpr(f"{self._key()} as ek"))
        if "slice" in doubts and rows.ops is not None:
            others.append(rows.ops.where("t in ('b', 's', 'a', 'r', 'd')").select("ek").distinct())
        paths = [file.file_path for each in rows.new for file in each.files]
        columns = [column.name for column in self.layout.key]
        schema = ", ".join(f"{quote(name)} {self._types[name]}" for name in columns)
        keys = self._read(keys_with(self.files, paths, columns), len(paths), schema)
        return not clash(keys.selectExpr(f"{self._key()} as ek"), others)

    def _discard(self, written: Sequence[Written]) -> None:
        io = self.files.file_io()
        for each in written:
            for file in each.files:
                remove(file.file_path, io)

    def _key(self) -> str:
        return key_text(self.layout)

    def _table(self) -> DataFrame:
        found: DataFrame = self.session.table(self.branch)
        return found

    @cached_property
    def _types(self) -> Mapping[str, str]:
        return {each.name: each.dataType.simpleString() for each in self._table().schema.fields}

    # ------------------------------------------------------------ folding

    def _few_keys(self, rows: SliceRows) -> str | None:
        """The only entities that a small slice concerns, as SQL by which whole files are left out; None: others too."""
        counts, key = rows.others.counts, self.layout.key[0]
        if rows.ops is None or len(self.layout.key) > 1 or not counts.keys() <= {"b", "s", "a", "r", "d", "x"}:
            return None
        if sum(counts.values()) > FEW_OPS or key.type not in OWN_TEXT:
            return None
        found = rows.ops.where("ek is not null and t <> 'x'").select("ek").distinct().collect()
        texts = [literal(each["ek"]) if key.type is Plain.STRING else each["ek"] for each in found]
        return f"{quote(key.name)} in ({', '.join(texts)})" if texts else None

    def _fold(self, rows: SliceRows, writer: FoldWriter) -> list[WrittenPart]:
        beside = current_rows(self._read(read_side(self.files, self.side.kept), len(self.side.kept), side_data.SIDE))
        columns = [quote(c.name) for c in (*self.layout.key, *self.layout.scalars, *self.layout.multi)]
        base = self._table().where(f"not coalesce({names.DELETED}, false)").select(*columns)
        if (keys := self._few_keys(rows)) is not None:
            base = base.where(keys)
        ops = rows.ops if rows.ops is not None else self._read(None, 0, OPS)
        fold = Fold(self.layout, ops.where("t <> 'x'"), base, beside)
        fold = expand_barriers(fold, ops, rows.summary)
        fold = replace(fold, clears=rows.summary.clears(self.layout, None))
        changes = fold.changes().localCheckpoint()
        self.counts.early = fold.early_ops().count()
        if rows.summary.quarantined:
            self.counts.bad_documents = ops.where("t = 'x'").select("pos").distinct().count()
        written = self._rows_to_write(fold, changes, ops, beside, self.side, rows.summary)
        answers = written.mapInArrow(write_with(writer), RECEIPTS).collect()
        return [pickle.loads(bytes(each["receipt"])) for each in answers]

    def _rows_to_write(
        self, fold: Fold, changes: DataFrame, ops: DataFrame, beside: DataFrame, side: SideFiles, summary: Summary
    ) -> DataFrame:
        """The changed entities, and rows of the side data, as one frame."""
        entities = [*((f"k{i}", c.name) for i, c in enumerate(self.layout.key))]
        entities += [(f"s{i}", c.name) for i, c in enumerate(self.layout.scalars)]
        entities += [(f"m{i}", c.name) for i, c in enumerate(self.layout.multi)]
        values = [
            f"{mine} as {quote(name)}" if mine.startswith("k") else f"if(exists, {mine}, null) as {quote(name)}"
            for mine, name in entities
        ]
        no_side = [f"cast(null as {type_}) as {PREFIX}{name}" for name, type_ in _side_columns()]
        rows = changes.where("changed").selectExpr(*values, "if(exists, 'upsert', 'delete') as _change", *no_side)
        given = [self._early_rows(changes, beside, summary), self._bad_rows(ops)]
        given += [fold.remembered()] if self.layout.fan_outs else []
        found = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), given)
        found = self._whole_side(found, beside, fold.clears) if side.is_rewritten or fold.clears.fan_outs else found
        types = {each.name: each.dataType.simpleString() for each in changes.schema.fields}
        no_values = [f"cast(null as {types[mine]}) as {quote(name)}" for mine, name in entities]
        present = set(found.columns)
        own = [
            f"{name if name in present else f'cast(null as {type_})'} as {PREFIX}{name}"
            for name, type_ in _side_columns()
        ]
        side.is_rewritten = side.is_rewritten or bool(fold.clears.fan_outs)
        return rows.unionByName(found.selectExpr(*no_values, "cast(null as string) as _change", *own))

    def _early_rows(self, changes: DataFrame, beside: DataFrame, summary: Summary) -> DataFrame:
        """Early ops that are new, or no longer wait, or have waited too long."""
        kept = "early is not null"
        rows = changes
        if self.early_for is not None:
            before = (summary.last_at or 0) - self.early_for
            kept = f"early is not null and since >= {before}"
            waiting = beside.where(f"kind = 'early' and since < {before}").join(
                changes, beside["b"] == changes["ek"], "anti"
            )
            forgotten = waiting.selectExpr(
                "b as ek", "null as early", "null as since", "v as was_early", "since as was_since"
            )
            rows = changes.select("ek", "early", "since", "was_early", "was_since").unionByName(forgotten)
            dropped = changes.where(f"early is not null and since < {before}").count() + forgotten.count()
            self.counts.dropped = dropped
        rows = rows.selectExpr("*", f"if({kept}, early, null) as keeps")
        changed = rows.where("not (keeps <=> was_early) or keeps is not null and not (since <=> was_since)")
        return changed.selectExpr(
            "'early' as kind", "'' as a", "ek as b", "'' as c", "keeps as v", "since", "keeps is null as gone"
        )

    def _bad_rows(self, ops: DataFrame) -> DataFrame:
        return ops.where("t = 'x'").selectExpr(
            "'bad' as kind",
            "tbl as a",
            "v as b",
            "f as c",
            "cast(null as string) as v",
            "at as since",
            "false as gone",
            "id",
        )

    def _whole_side(self, found: DataFrame, beside: DataFrame, clears: Clears) -> DataFrame:
        """Everything that holds after the slice, to be rewritten."""
        from pyspark.sql import functions as F

        before = beside.selectExpr("*", "false as gone", "-1L as number")
        if clears.fan_outs:
            before = before.where(~((F.col("kind") == "fan") & F.col("c").isin(list(clears.fan_outs))))
        kept = (
            found.where("kind <> 'bad'")
            .select("kind", "a", "b", "c", "v", "since", "gone")
            .selectExpr("*", "1L as number")
        )
        merged = current_rows(before.unionByName(kept)).selectExpr("*", "false as gone")
        return merged.unionByName(found.where("kind = 'bad'"), allowMissingColumns=True)


def _side_columns() -> list[tuple[str, str]]:
    return [(name, type_) for name, type_ in (each.split(" ") for each in side_data.SIDE.split(", "))]
