"""Lands a slice of documents in a state table: folds it on a branch, and moves main with everything that belongs to it.

The entities that change are appended to the branch, one MERGE there deletes their older rows, and one commit moves main
with head, chain and side data. A race that is lost folds again on what is there then.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any

from penstock.core.ops import Layout
from penstock.core.outcome import Outcome
from penstock.errors import StreamRefused, StreamStopped
from penstock.lake import names
from penstock.lake.folding import side_data
from penstock.lake.folding.documents import read_ops
from penstock.lake.folding.fold import Clears, Fold, matching
from penstock.lake.folding.side_data import BRANCH, current_rows, kind_of, list_files, read_side
from penstock.lake.folding.staging import DOCUMENTS, StagedPart, documents_of
from penstock.lake.folding.writing import PREFIX, RECEIPTS, FoldWriter, WrittenPart, write_with
from penstock.lake.landing import StagedSlice
from penstock.lake.merge_statement import quote
from penstock.lake.merging import Merging
from penstock.lake.parquet import FileLayout
from penstock.lake.table_state import TableState
from penstock.lake.tables import MovedBranch, NewSnapshot, drop_refs, start_branch, translate_commit_errors

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame

#: ops that a partition of a shuffle has
OPS_PER_PARTITION = 100_000
MAX_PARTITIONS = 200
#: a slice that is folded without adapting the plan
FEW_DOCUMENTS = 20_000


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


@dataclass(frozen=True)
class Folding(Merging):
    """Commits a slice of documents to a state table."""

    layout: Layout = field(kw_only=True)
    parts: Sequence[StagedPart] = field(kw_only=True)
    files: FileLayout = field(kw_only=True)
    #: microseconds after which early ops are dropped; None: never
    early_for: int | None = field(kw_only=True, default=None)
    counts: Counts = field(kw_only=True, default_factory=Counts)

    @property
    def side_branch(self) -> str:
        slice_ = self.landing.slice
        return names.branch_name(slice_.pipeline, slice_.stream, slice_.number, f"{self.landing.attempt}side")

    def commit(self, table: Table, state: TableState, staged: StagedSlice) -> NewSnapshot:
        if table.metadata.current_snapshot_id is None:
            table, state = self._add_first_snapshot(table, state)
        base = table.metadata.current_snapshot_id
        assert base is not None
        probe, number = self.landing.probe, self.landing.slice.number
        start_branch(table, self.branch, base)
        with self._settings():
            side = self._side_files(table, state)
            written = self._fold(state, side)
        probe.at("lake.folded", number=number)
        changed = self._staged(staged, state, written)
        if changed.files:
            table = self._load_branch()[0]
            self._stage(table, changed, base)
            probe.at("lake.staged", number=number)
            if not state.empty:
                self._delete_older(table, changed)
                probe.at("lake.merged", number=number)
        kept = self._stage_side(side, written)
        probe.at("lake.side_staged", number=number)
        return self._swap_both(state, changed, base, kept)

    def _staged(self, staged: StagedSlice, state: TableState, written: Sequence[WrittenPart]) -> StagedSlice:
        """The changed entities, as a slice that a keyed table takes."""
        files = [file for part in written for file in part.files]
        last = max((part.last for part in written if part.last is not None), default=state.head)
        rows = sum(file.record_count for file in files)
        return replace(staged, files=files, rows=rows, start=state.head + 1, last=last)

    # ------------------------------------------------------------ folding

    @contextmanager
    def _settings(self) -> Iterator[None]:
        """Settings for the size of the slice; those of the session come back."""
        session = self.spark.session()
        rows = sum(part.rows for part in self.parts)
        wanted = {"spark.sql.shuffle.partitions": str(min(MAX_PARTITIONS, max(2, rows // OPS_PER_PARTITION)))}
        if rows <= FEW_DOCUMENTS:
            # A plan that is adapted makes a job of each stage, which costs more than such a slice itself.
            wanted["spark.sql.adaptive.enabled"] = "false"
        before = {name: session.conf.get(name, None) for name in wanted}
        for name, value in wanted.items():
            session.conf.set(name, value)
        try:
            yield
        finally:
            for name, was in before.items():
                if was is None:
                    session.conf.unset(name)
                else:
                    session.conf.set(name, was)

    def _fold(self, state: TableState, side: _SideFiles) -> list[WrittenPart]:
        from penstock.errors import StreamFailed

        try:
            return self.spark.wait(
                lambda: self._run_fold(state, side), failed=f"the fold into {self.landing.table} failed"
            )
        except StreamFailed as error:
            raise self._explain(error) from error

    def _run_fold(self, state: TableState, side: _SideFiles) -> list[WrittenPart]:
        session = self.spark.session()
        documents = self._read(documents_of(self.files, self.parts), len(self.parts), DOCUMENTS)
        ops = read_ops(documents, self.layout).localCheckpoint()
        summary = _summarize(ops)
        beside = self._read(read_side(self.files, side.kept), len(side.kept), side_data.SIDE)
        beside = current_rows(beside)
        columns = [quote(c.name) for c in (*self.layout.key, *self.layout.scalars, *self.layout.multi)]
        branch = f"{self.landing.lake.spark_table(self.landing.table)}.branch_{self.branch}"
        base = session.table(branch).where(f"not coalesce({names.DELETED}, false)").select(*columns)
        fold = Fold(self.layout, ops.where("t <> 'x'"), base, beside)
        fold = expand_barriers(fold, ops, summary)
        fold = replace(fold, clears=summary.clears(self.layout, None))
        changes = fold.changes().localCheckpoint()
        self.counts.ops = summary.ops
        self.counts.quarantined = summary.quarantined
        self.counts.early = fold.early_ops().count()
        if summary.quarantined:
            self.counts.bad_documents = ops.where("t = 'x'").select("pos").distinct().count()
        rows = self._rows_to_write(fold, changes, ops, beside, side, summary)
        answers = rows.mapInArrow(write_with(self._writer(state)), RECEIPTS).collect()
        return [pickle.loads(bytes(each["receipt"])) for each in answers]

    def _read(self, reader: Any, count: int, schema: str) -> DataFrame:
        session = self.spark.session()
        if not count:
            frame: DataFrame = session.createDataFrame([], schema)
            return frame
        made: DataFrame = session.range(0, count, 1, count).mapInArrow(reader, schema)
        return made

    def _writer(self, state: TableState) -> FoldWriter:
        slice_ = self.landing.slice
        stem = names.file_stem(slice_.pipeline, slice_.stream, slice_.number, self.landing.attempt)
        return FoldWriter(self.files, stem, state.head + 1, slice_.number)

    def _rows_to_write(
        self, fold: Fold, changes: DataFrame, ops: DataFrame, beside: DataFrame, side: _SideFiles, summary: Summary
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

    # ------------------------------------------------------------ side data

    def _side_files(self, table: Table, state: TableState) -> _SideFiles:
        named = state.properties.get(names.SIDE)
        try:
            files = list_files(table, int(named) if named else None)
        except KeyError as error:
            slice_ = self.landing.slice
            raise StreamStopped(
                f"the table {self.landing.table} has lost the snapshot {named}, in which early ops and the last values "
                f"of fan-outs are kept (branch {BRANCH})",
                next_step=f"restore the branch; or `penstock state migrate FILE --stream {slice_.stream}` "
                "begins again in a new table",
                safe="Nothing was changed.",
                pipeline=slice_.pipeline,
                stream=slice_.stream,
            ) from error
        except side_data.OtherForm as error:
            raise StreamRefused(
                f"the side data of the table {self.landing.table} (branch {BRANCH}) was written by another version of "
                f"penstock: {error}",
                next_step="use that version; or name another table with `into`, and the stream begins again there",
                safe="Nothing was changed.",
            ) from error
        return _SideFiles(int(named) if named else None, files)

    def _stage_side(self, side: _SideFiles, written: Sequence[WrittenPart]) -> int | None:
        """Put the new files on a branch of their own; the snapshot that then belongs to the table."""
        new = [file for part in written for file in part.side]
        if not new and not side.is_rewritten:
            return side.snapshot
        table = self._load_branch()[0]
        branch = self.side_branch
        if branch in table.metadata.refs:
            drop_refs(table, [branch])
            table = self._load_branch()[0]
        if side.snapshot is not None and not side.is_rewritten:
            start_branch(table, branch, side.snapshot)
            table = self._load_branch()[0]
        added = [*(file for file in side.files if kind_of(file) == "bad"), *new] if side.is_rewritten else new
        with translate_commit_errors():
            transaction = table.transaction()
            producer = transaction.update_snapshot(branch=branch).fast_append()
            producer.snapshot_properties = {names.KIND: "side", names.SIDE_FORM: side_data.FORM}
            for file in added:
                producer.append_data_file(file)
            producer.commit()
            transaction.commit_transaction()
            return producer.snapshot_id

    def _swap_both(self, state: TableState, changed: StagedSlice, base: int, side: int | None) -> NewSnapshot:
        before = state.properties.get(names.SIDE)
        if side is None:
            return self._swap(state, changed, base)
        moved = None if str(side) == before else MovedBranch(BRANCH, side, self.side_branch)
        return self._swap(state, changed, base, beside=moved, more={names.SIDE: str(side)})


@dataclass
class _SideFiles:
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


@dataclass(frozen=True)
class Summary:
    """What a slice's rows are, by kind, and the places of its barriers."""

    counts: Mapping[str, int]
    #: place, table and field of each `clear`
    cleared: Sequence[tuple[int, str | None, str | None]]
    #: place and filter of each undeclared `query_op_set`
    filters: Sequence[tuple[int, Any]]
    #: when the youngest document was written
    last_at: int | None = None

    @property
    def ops(self) -> int:
        return sum(count for kind, count in self.counts.items() if kind not in ("x", "b"))

    @property
    def quarantined(self) -> int:
        return self.counts.get("x", 0)

    def clears(self, layout: Layout, before: int | None) -> Clears:
        return Clears.of(self.cleared, layout, before)


def _summarize(ops: DataFrame) -> Summary:
    from pyspark.sql import functions as F

    kinds = ops.groupBy("t").agg(F.count("*").alias("n"), F.max("at").alias("at")).collect()
    counted = {row["t"]: row["n"] for row in kinds}
    last_at = max((row["at"] for row in kinds if row["at"] is not None), default=None)
    cleared: list[Any] = []
    filters: list[Any] = []
    if counted.keys() & {"c", "k"}:
        cleared = [tuple(row) for row in ops.where("t in ('c', 'k')").select("pos", "tbl", "f").collect()]
    if "q" in counted:
        found = ops.where("t = 'q'").select("pos", "v").orderBy("pos").collect()
        filters = [(row["pos"], json.loads(row["v"])) for row in found]
    return Summary(counted, cleared, filters, last_at)


def expand_barriers(fold: Fold, ops: DataFrame, summary: Summary) -> Fold:
    """Turn each undeclared `query_op_set` into ops of the entities that match at its place, one after the other."""
    for place, where in summary.filters:
        before = replace(
            fold,
            ops=fold.ops.where(f"pos < {place}"),
            clears=summary.clears(fold.layout, place),
            everything=True,
        )
        keys = matching(before.changes(), fold.layout, where)
        inner = ops.where(f"pos = {place} and t in ('Qs', 'Qa', 'Qr')").drop("ek")
        applied = keys.crossJoin(inner).selectExpr("pos", "id", "at", "substr(t, 2) as t", "n", "tbl", "ek", "f", "v")
        applied = applied.localCheckpoint()
        fold = replace(fold, ops=fold.ops.unionByName(applied))
    return fold


def _side_columns() -> list[tuple[str, str]]:
    return [(name, type_) for name, type_ in (each.split(" ") for each in side_data.SIDE.split(", "))]
