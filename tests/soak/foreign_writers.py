"""Other programs in the soak `foreign`: what PyIceberg and Spark do to a table of ours, with and without numbers."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.table import Table

from penstock.lake import names
from penstock.lake.landing import list_current_files
from penstock.lake.tables import open_catalog
from tests.lake.compaction import compact
from tests.lake.upkeep.upkeep_tables import UpkeepTable

#: what other writers put into `_ingest_seq`
NUMBERS = ("zero", "negative", "copied", "low", "above")


@dataclass
class Others:
    """Every kind of foreign write, at random; what the oracle must know of them."""

    lake: UpkeepTable
    chance: random.Random
    #: the next key and the next version: each is used once
    next_key: int = 1
    next_version: int = 1
    #: keys of rows that an overwrite wrote under the number of a row that it removed: they count as that row, changed
    in_place: set[int] = field(default_factory=set)
    done: dict[str, int] = field(default_factory=dict)

    # ------------------------------------------------------------ by PyIceberg

    def quick(self) -> None:
        """Something that needs no Spark."""
        self._do(
            [
                (4, self.append),
                (2, self.delete),
                (2, self.overwrite),
                (3, self.replace),
                (1, self.compact),
                (1, self.expire),
            ]
        )

    def append(self) -> None:
        with warnings.catch_warnings(action="ignore"):
            self._table().append(self._rows(self.chance.randint(1, 12)))

    def delete(self) -> None:
        first, last = self._some_keys()
        with warnings.catch_warnings(action="ignore"):
            self._table().delete(f"key >= {first} and key <= {last}")

    def overwrite(self) -> None:
        """A delete and an append, as PyIceberg does it."""
        first, last = self._some_keys()
        with warnings.catch_warnings(action="ignore"):
            self._table().overwrite(self._rows(self.chance.randint(1, 8)), f"key >= {first} and key <= {last}")

    def replace(self) -> None:
        """One snapshot that copies everything, changes some rows, drops some and brings others."""
        table = self._table()
        old = table.scan().to_arrow()
        first, last = self._some_keys()
        chosen = pc.and_(pc.greater_equal(old["key"], first), pc.less_equal(old["key"], last))
        changed = pc.if_else(chosen, pa.scalar(self._version()), old["version"])
        rows = old.set_column(old.column_names.index("version"), "version", changed)
        rows = rows.filter(pc.not_equal(rows["key"], self.chance.randint(1, self.next_key)))
        new = self._rows(self.chance.randint(0, 8))
        self._count_in_place(new, old)
        with warnings.catch_warnings(action="ignore"):
            transaction = table.transaction()
            producer = transaction.update_snapshot().overwrite()
            for file in list_current_files(table):
                producer.delete_data_file(file)
            rows = pa.concat_tables([rows.cast(new.schema), new])
            for file in _dataframe_to_data_files(table.metadata, rows, table.io):
                producer.append_data_file(file)
            producer.commit()
            transaction.commit_transaction()

    def compact(self) -> None:
        compact(self._table())

    def expire(self, keep: int | None = None) -> None:
        """All but the newest snapshots."""
        table = self._table()
        line = list(self.lake.state.line())[keep or self.chance.randint(1, 4) :]
        pinned = {ref.snapshot_id for ref in table.metadata.refs.values()}
        gone = [snapshot.id for snapshot in line if snapshot.id not in pinned]
        if gone:
            table.maintenance.expire_snapshots().by_ids(gone).commit()

    # ------------------------------------------------------------ by Spark

    def heavy(self) -> None:
        """Something by Spark SQL."""
        self._do(
            [
                (3, self.spark_insert),
                (4, self.spark_update),
                (2, self.spark_delete),
                (4, self.spark_merge),
                (1, self.spark_overwrite),
                (2, self.spark_compact),
                (1, self.spark_expire),
            ]
        )

    def spark_insert(self) -> None:
        self._sql(f"insert into {self._name} {self._view(self._rows(self.chance.randint(1, 12)))}")

    def spark_update(self) -> None:
        first, last = self._some_keys()
        self._sql(f"update {self._name} set version = {self._version()} where key between {first} and {last}")

    def spark_delete(self) -> None:
        first, last = self._some_keys()
        self._sql(f"delete from {self._name} where key between {first} and {last}")

    def spark_merge(self) -> None:
        """Some keys that are there and some that are not."""
        first, last = self._some_keys()
        new = self._view(self._rows(self.chance.randint(1, 8)))
        old = f"select * from {self._name} where key between {first} and {last}"
        self._sql(
            f"merge into {self._name} t using ({new} union all {old}) s on t.key = s.key "
            f"when matched then update set version = {self._version()} when not matched then insert *"
        )

    def spark_overwrite(self) -> None:
        new = self._rows(self.chance.randint(5, 20))
        self._count_in_place(new, self._table().scan().to_arrow())
        self._sql(f"insert overwrite {self._name} {self._view(new)}")

    def spark_compact(self) -> None:
        self._call("rewrite_data_files", "options => map('rewrite-all', 'true')")

    def spark_expire(self) -> None:
        keep = self.chance.randint(1, 4)
        self._call("expire_snapshots", f"older_than => timestamp '2100-01-01 00:00:00', retain_last => {keep}")

    # ------------------------------------------------------------ rows

    def _rows(self, count: int) -> pa.Table:
        """New keys, each with a number that penstock did not hand out to it."""
        schema = self._table().schema().as_arrow()
        keys = list(range(self.next_key, self.next_key + count))
        self.next_key += count
        given: dict[str, list[Any]] = {
            "place": keys,
            "key": keys,
            "version": [0] * count,
            names.SEQ: self._numbers(count),
            names.DELETED: [False] * count,
        }
        return pa.table({each.name: pa.array(given[each.name], each.type) for each in schema}, schema=schema)

    def _numbers(self, count: int) -> list[int | None]:
        optional = not self._table().schema().find_field(names.SEQ).required
        way = self.chance.choice((*NUMBERS, "none") if optional else NUMBERS)
        head = self.lake.state.head
        self._note(f"numbers_{way}")
        match way:
            case "none":
                return [None] * count
            case "zero":
                return [0] * count
            case "negative":
                return [-self.chance.randint(1, 1000) for _ in range(count)]
            case "copied":
                there = [each for each in self._numbers_there() if each is not None] or [1]
                return [self.chance.choice(there) for _ in range(count)]
            case "low":
                return [self.chance.randint(1, max(1, head)) for _ in range(count)]
            case _:
                return [head + self.chance.randint(1, 50) for _ in range(count)]

    def _numbers_there(self) -> list[int | None]:
        found: list[int | None] = self._table().scan(selected_fields=(names.SEQ,)).to_arrow()[names.SEQ].to_pylist()
        return found

    def _count_in_place(self, new: pa.Table, old: pa.Table) -> None:
        there = set(old[names.SEQ].to_pylist())
        for key, number in zip(new["key"].to_pylist(), new[names.SEQ].to_pylist(), strict=True):
            if number is not None and number > 0 and number in there:
                self.in_place.add(key)

    def _some_keys(self) -> tuple[int, int]:
        """A few neighbours, as first and last."""
        first = self.chance.randint(1, max(1, self.next_key - 1))
        return first, first + self.chance.randint(0, 5)

    def _version(self) -> int:
        self.next_version += 1
        return self.next_version

    # ------------------------------------------------------------ doing it

    def _do(self, choices: list[tuple[int, Callable[[], None]]]) -> None:
        act = self.chance.choices([each for _, each in choices], [weight for weight, _ in choices])[0]
        self._note(act.__name__)
        act()

    def _note(self, what: str) -> None:
        self.done[what] = self.done.get(what, 0) + 1

    def _table(self) -> Table:
        """As others load it: PyIceberg with its own retries."""
        return open_catalog(self.lake.lake).load_table(self.lake.lake.identifier("s"))

    @property
    def _name(self) -> str:
        return self.lake.lake.spark_table("s")

    def _view(self, rows: pa.Table) -> str:
        """A query that gives these rows."""
        values = ", ".join(
            "(" + ", ".join("null" if value is None else str(value).lower() for value in row.values()) + ")"
            for row in rows.to_pylist()
        )
        columns = ", ".join(rows.column_names)
        return f"select * from values {values} as new({columns})"

    def _sql(self, text: str) -> None:
        self.lake.spark.session().sql(text).collect()

    def _call(self, procedure: str, options: str) -> None:
        place = self.lake.lake
        self._sql(f"call `{place.name}`.system.{procedure}(table => '`{place.namespace}`.`s`', {options})")
