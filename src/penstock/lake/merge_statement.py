"""The MERGE that lands a slice in a keyed table: which rows of its keys go, stay or are marked as deleted.

The slice's rows are in the table already, in files of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from penstock.lake import names

#: what becomes of a row that is deleted at the source: nothing; it is marked; a tombstone replaces it
Deletes = Literal["ignore", "soft", "hard"]


def quote(name: str) -> str:
    """A name as Spark SQL reads it, whatever is in it."""
    return f"`{name.replace('`', '``')}`"


def find_free_name(wanted: str, columns: Collection[str]) -> str:
    """A name that no column has: Spark would take `row._file` for a field of a column called row."""
    taken = {name.lower() for name in columns}
    while wanted in taken:
        wanted += "_"
    return wanted


@dataclass(frozen=True)
class MergeStatement:
    """One slice on one branch."""

    #: the branch, as Spark names it
    branch: str
    #: how the names of the slice's own data files begin
    stem: str
    #: the lowest and the highest number of its rows
    first: int
    last: int
    key: Sequence[str]
    #: every column of the table
    columns: Collection[str]
    #: the column that says which of two rows is newer; None: the row of the slice that came last is
    newer_than: str | None = None
    deletes: Deletes = "hard"
    #: with soft deletes, the column that holds their timestamps
    deleted_at: str | None = None
    #: a row that is as new as the table's replaces it
    replaces_equal: bool = False
    #: send the slice's keys to every worker
    broadcast: bool = True

    def sql(self) -> str:
        row, new = find_free_name("held", self.columns), find_free_name("new", self.columns)
        hint = f"/*+ broadcast({new}) */ " if self.broadcast else ""
        keys = " and ".join(f"{row}.{quote(name)} = {new}.k{i}" for i, name in enumerate(self.key))
        newest = f"({self._of_the_slice(row)} and {row}.{names.SEQ} = {new}.newest)"
        goes, update = f"not {newest}", ""
        if not self._is_plain:
            goes = f"if({new}.wins, not {newest}, {self._of_the_slice(row)})"
        if self.deleted_at is not None:
            goes = f"({goes} or {new}.marks)"
            update = (
                f"when matched and {new}.marks and {self._is_chosen(row, new)} then update set {self._mark(row, new)} "
            )
        return (
            f"merge into {self.branch} {row} using (select {hint}* from ({self._choice()}) {new}) {new} "  # noqa: S608 (quoted)
            f"on {keys} and {goes} {update}when matched then delete"
        )

    @property
    def _is_plain(self) -> bool:
        """Whether the last row of a key always stays, be it a delete or not."""
        return self.newer_than is None and self.deletes == "hard"

    def _choice(self) -> str:
        """For each key of the slice: the number of its newest row there, and whether that is newer than the table's."""
        keys = ", ".join(f"{quote(name)} as k{i}" for i, name in enumerate(self.key))
        grouped = ", ".join(f"k{i}" for i in range(len(self.key)))
        value = f", {self._value} as value, coalesce({names.DELETED}, false) as gone"
        rows = (
            f"select {keys}, {names.SEQ} as seq{'' if self._is_plain else value} from {self.branch} "  # noqa: S608 (quoted)
            f"where {names.SEQ} between {self.first} and {self.last} and {self._of_the_slice()}"
        )
        if self._is_plain:
            return f"select {grouped}, max(seq) as newest from ({rows}) group by {grouped}"  # noqa: S608 (quoted)
        # A delete that is ignored hides no other row of its key.
        order = "struct(not gone, value, seq)" if self.deletes == "ignore" else "struct(value, seq)"
        newest = (
            f"select {grouped}, max_by(struct(seq, value, gone), {order}) as best "  # noqa: S608 (quoted)
            f"from ({rows}) group by {grouped}"
        )
        others = (
            f"select {keys}, {self._value} as value, {self._place} as place from {self.branch} "  # noqa: S608 (quoted)
            f"where not {self._of_the_slice()}"
        )
        mine = ", ".join(f"s.k{i}" for i in range(len(self.key)))
        hint = "/*+ broadcast(s) */ " if self.broadcast else ""
        # Inner first: the slice's keys go to where the table's rows are. Spark cannot do so in an outer join.
        held = (
            f"select {hint}{mine}, max(t.value) as held, max_by(t.place, struct(t.value, t.place)) as place "  # noqa: S608 (quoted)
            f"from s join ({others}) t on {self._same('s', 't')} group by {mine}"
        )
        return (
            f"with s as ({newest}), h as ({held}) "  # noqa: S608 (quoted)
            f"select {mine}, s.best.seq as newest, s.best.value as value, {self._wins()} as wins, "
            f"{self._marks()} as marks, h.place as place from s left join h on {self._same('s', 'h')}"
        )

    @property
    def _value(self) -> str:
        """What tells which of two rows is newer."""
        return "cast(null as int)" if self.newer_than is None else quote(self.newer_than)

    @property
    def _place(self) -> str:
        """Where a row of the table lies, and whether it is deleted already."""
        if self.deleted_at is None:
            return "cast(null as int)"
        marked = f"{quote(self.deleted_at)} is not null as marked"
        gone = f"coalesce({names.DELETED}, false) as gone"
        return f"struct({names.SEQ} as seq, _file as file, _pos as pos, {gone}, {marked})"

    def _same(self, one: str, other: str) -> str:
        return " and ".join(f"{one}.k{i} = {other}.k{i}" for i in range(len(self.key)))

    def _wins(self) -> str:
        """Whether the newest row of the slice stays: it is newer than the table's, and no delete that leaves no row.

        A row without a value is newer than none; a delete that knows no more than the key deletes.
        """
        sign = ">=" if self.replaces_equal else ">"
        upsert = f"s.best.value is not null and (h.held is null or s.best.value {sign} h.held)"
        if self.newer_than is None:
            upsert = "true"
        delete = self._is_current_delete if self.deletes == "hard" else "false"
        return f"if(s.best.gone, h.k0 is null and {self.deletes == 'hard'} or {delete}, h.k0 is null or {upsert})"

    def _marks(self) -> str:
        """Whether the slice marks the table's row. A marked row keeps its timestamp, and learns of a later delete."""
        if self.deleted_at is None:
            return "false"
        is_news = "not h.place.marked or coalesce(s.best.value > h.held, s.best.value is not null)"
        if self.newer_than is None:
            is_news = "not h.place.marked"
        return f"(h.k0 is not null and s.best.gone and not h.place.gone and {self._is_current_delete} and ({is_news}))"

    @property
    def _is_current_delete(self) -> str:
        return "coalesce(s.best.value >= h.held, true)"

    def _is_chosen(self, row: str, new: str) -> str:
        """Whether this is the row to mark; others of its key, which other programs have added, go."""
        return f"{row}._file = {new}.place.file and {row}._pos = {new}.place.pos"

    def _mark(self, row: str, new: str) -> str:
        """A marked row keeps the time of its delete, so that a late version from before the delete is stale."""
        assert self.deleted_at is not None
        marker = f"{row}.{quote(self.deleted_at)}"
        sets = [f"{marker} = coalesce({marker}, current_timestamp())", f"{row}.{names.SEQ} = {new}.newest"]
        if self.newer_than is not None:
            value = f"{row}.{quote(self.newer_than)}"
            sets.append(f"{value} = coalesce({new}.value, {value})")
        return ", ".join(sets)

    def _of_the_slice(self, row: str | None = None) -> str:
        """Whether a row lies in one of the slice's own files: numbers alone can be anybody's."""
        file = f"{row}._file" if row else "_file"
        return f"(instr({file}, '/{self.stem}-') > 0)"
