"""The MERGE that makes a keyed table hold one row for each key of a slice, as Spark SQL.

It runs on a branch to which the slice's files were appended. What the branch has besides is older, whatever numbers
it carries: rows of other writers have none, or those of another table.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from penstock.lake import names


def quoted(name: str) -> str:
    """A name as Spark SQL reads it, whatever is in it."""
    return f"`{name.replace('`', '``')}`"


def unlike(wanted: str, columns: Collection[str]) -> str:
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
    #: send the slice's keys to every worker
    broadcast: bool = True

    def sql(self) -> str:
        row, new = unlike("held", self.columns), unlike("new", self.columns)
        hint = f"/*+ broadcast({new}) */ " if self.broadcast else ""
        keys = " and ".join(f"{row}.{quoted(name)} = {new}.k{i}" for i, name in enumerate(self.key))
        newest = f"({self._of_the_slice(row)} and {row}.{names.SEQ} = {new}.newest)"
        goes = f"not {newest}"
        if self.newer_than is not None:
            goes = f"if({new}.wins, not {newest}, {self._of_the_slice(row)})"
        return (
            f"merge into {self.branch} {row} using (select {hint}* from ({self._choice()}) {new}) {new} "  # noqa: S608 (quoted)
            f"on {keys} and {goes} when matched then delete"
        )

    def _choice(self) -> str:
        """For each key of the slice: the number of its newest row there, and whether that is newer than the table's."""
        keys = ", ".join(f"{quoted(name)} as k{i}" for i, name in enumerate(self.key))
        grouped = ", ".join(f"k{i}" for i in range(len(self.key)))
        value = "" if self.newer_than is None else f", {quoted(self.newer_than)} as value, {names.DELETED} as gone"
        rows = (
            f"select {keys}, {names.SEQ} as seq{value} from {self.branch} "  # noqa: S608 (quoted)
            f"where {names.SEQ} between {self.first} and {self.last} and {self._of_the_slice()}"
        )
        if self.newer_than is None:
            return f"select {grouped}, max(seq) as newest from ({rows}) group by {grouped}"  # noqa: S608 (quoted)
        newest = (
            f"select {grouped}, max_by(struct(seq, value, gone), struct(value, seq)) as best "  # noqa: S608 (quoted)
            f"from ({rows}) group by {grouped}"
        )
        others = (
            f"select {keys}, {quoted(self.newer_than)} as value from {self.branch} where not {self._of_the_slice()}"  # noqa: S608 (quoted)
        )
        mine = ", ".join(f"s.k{i}" for i in range(len(self.key)))
        hint = "/*+ broadcast(s) */ " if self.broadcast else ""
        # Inner first: the slice's keys go to where the table's rows are. Spark cannot do so in an outer join.
        held = (
            f"select {hint}{mine}, max(t.value) as held from s join ({others}) t on {self._same('s', 't')} "  # noqa: S608 (quoted)
            f"group by {mine}"
        )
        return (
            f"with s as ({newest}), h as ({held}) "  # noqa: S608 (quoted)
            f"select {mine}, s.best.seq as newest, {self._wins()} as wins from s left join h on {self._same('s', 'h')}"
        )

    def _same(self, one: str, other: str) -> str:
        return " and ".join(f"{one}.k{i} = {other}.k{i}" for i in range(len(self.key)))

    def _wins(self) -> str:
        """A row without a value is newer than none; a delete that knows no more than the key deletes."""
        upsert = "s.best.value is not null and (h.held is null or s.best.value > h.held)"
        delete = "coalesce(s.best.value >= h.held, true)"
        return f"(h.k0 is null or if(coalesce(s.best.gone, false), {delete}, {upsert}))"

    def _of_the_slice(self, row: str | None = None) -> str:
        """Whether a row lies in one of the slice's own files: numbers alone can be anybody's."""
        file = f"{row}._file" if row else "_file"
        return f"(instr({file}, '/{self.stem}-') > 0)"
