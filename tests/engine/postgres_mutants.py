"""Mistakes one could make in the Postgres sink, each made on purpose in the real code; and those of the gate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

from psycopg import sql

from penstock.core.outcome import Outcome
from penstock.errors import CommitUnclear
from penstock.sinks.postgres import staging as staging_module
from penstock.sinks.postgres import writer as writer_module
from penstock.sinks.postgres.commit import SliceCommit
from penstock.sinks.postgres.ledger import Ledger
from penstock.sinks.postgres.sink import PostgresSink
from penstock.sinks.postgres.staging import Staging
from tests.engine.mutants import MUTANTS, Mutant, patched, registering, uid_in_store

#: of the gate's own, those that the model makes beside a Postgres sink
POSTGRES_MUTANTS: dict[str, Mutant] = {
    name: MUTANTS[name]
    for name in (
        "holds n or more means already in",
        "plan anew on retry",
        "advance without compare-and-set",
        "less 'compare with sink': a run does not ask the sink first",
    )
}


mutant = registering(POSTGRES_MUTANTS)


# ---------------------------------------------------------------- the ledger


@mutant("the ledger moves in a transaction of its own, before the rows")
def _() -> Iterator[None]:
    move = Ledger.move

    def alone(self: Ledger, connection: Any, slice_: Any, **more: Any) -> bool:
        moved = move(self, connection, slice_, **more)
        connection.execute("COMMIT")
        connection.execute("BEGIN")
        return moved

    with patched((Ledger, "move", alone)):
        yield


@mutant("the ledger moves in a transaction of its own, after the rows")
def _() -> Iterator[None]:
    move, note = Ledger.move, Ledger.note
    wanted: dict[str, Any] = {}

    def later(self: Ledger, connection: Any, slice_: Any, **more: Any) -> bool:
        wanted.update(more)
        held = self.read(connection, slice_.stream)
        return bool((held.id if held else "") == slice_.previous)

    def at_last(self: Ledger, connection: Any, slice_: Any, attempt: str, outcome: Outcome, **more: Any) -> None:
        connection.execute("COMMIT")
        connection.execute("BEGIN")
        move(self, connection, slice_, **wanted)
        note(self, connection, slice_, attempt, outcome, **more)

    with patched((Ledger, "move", later), (Ledger, "note", at_last)):
        yield


@mutant("the ledger moves without compare-and-set")
def _() -> Iterator[None]:
    move = Ledger.move

    def blindly(self: Ledger, connection: Any, slice_: Any, **more: Any) -> bool:
        held = self.read(connection, slice_.stream)
        if held is None:
            return move(self, connection, slice_, **more)
        gone = sql.SQL("DELETE FROM {}.slices WHERE number >= %s").format(sql.Identifier(self.schema))
        connection.execute(gone, [slice_.number])
        before = replace(slice_, previous=held.id)
        before.__dict__["id"] = slice_.id
        return move(self, connection, before, **more)

    with patched((Ledger, "move", blindly)):
        yield


@mutant("the chain is kept under a uid born in the store")
def _() -> Iterator[None]:
    make = Ledger.__init__

    with uid_in_store() as uid:

        def of_uid(self: Ledger, schema: str, pipeline: str) -> None:
            make(self, schema, f"{pipeline}{uid[0] or ''}")

        with patched((Ledger, "__init__", of_uid)):
            yield


@mutant("recover leaves the ledger as it is")
def _() -> Iterator[None]:
    with patched((PostgresSink, "recover", lambda self, stream: ())):
        yield


# ---------------------------------------------------------------- staged rows


def _numbered_by_part() -> Any:
    """In place of chance: every try of a part has its number."""
    write = writer_module.PostgresWriter.write

    def by_part(self: Any, batches: Any, part: Any) -> Any:
        same = mock.Mock()
        same.SystemRandom.return_value.randrange.return_value = part.index + 1
        with patched((writer_module, "random", same)):
            return write(self, batches, part)

    return writer_module.PostgresWriter, "write", by_part


@mutant("the tries of a part are not told apart")
def _() -> Iterator[None]:
    with patched(_numbered_by_part()):
        yield


@mutant("staging shared by all attempts")
def _() -> Iterator[None]:
    """Told apart by the part and the try in it, as Spark numbers them: another driver counts them alike."""
    tries: dict[int, int] = {}
    write, writer = writer_module.PostgresWriter.write, PostgresSink.writer

    def begun(self: PostgresSink, slice_: Any, attempt: str) -> Any:
        tries.clear()
        return writer(self, slice_, attempt)

    def counted(self: Any, batches: Any, part: Any) -> Any:
        tries[part.index] = tries.get(part.index, 0) + 1
        same = mock.Mock()
        same.SystemRandom.return_value.randrange.return_value = 100 * part.index + tries[part.index]
        with patched((writer_module, "random", same)):
            return write(self, batches, part)

    of = Staging.of
    shared = staticmethod(lambda schema, pipeline, stream, number, attempt: of(schema, pipeline, stream, number, "one"))
    with patched(
        (Staging, "of", shared), (PostgresSink, "writer", begun), (writer_module.PostgresWriter, "write", counted)
    ):
        yield


@mutant("what lies in the table of the attempt is merged, whatever the receipts name")
def _() -> Iterator[None]:
    def all_of_it(self: SliceCommit, connection: Any) -> bool:
        return True

    with patched((SliceCommit, "_check_counts", all_of_it), _believed()):
        yield


@mutant("what is there is not counted")
def _() -> Iterator[None]:
    """What a crash of the server has emptied is not missed."""

    def uncounted(self: SliceCommit, connection: Any) -> bool:
        return False

    with patched((SliceCommit, "_check_counts", uncounted), _believed()):
        yield


def _believed() -> Any:
    """What became of the rows is not counted either."""
    merged = SliceCommit._write_rows

    def as_told(self: SliceCommit, connection: Any, rows: int, bad: Any) -> Outcome:
        merged(self, connection, rows, bad)
        return Outcome(created=rows)

    return SliceCommit, "_write_rows", as_told


@mutant("a sweep drops what was staged for later slices too")
def _() -> Iterator[None]:
    select = staging_module.select_tables

    def select_more(names: Sequence[str], pipeline: str, stream: str, upto: int) -> Any:
        return select(names, pipeline, stream, upto + 1)

    with patched((staging_module, "select_tables", select_more)):
        yield


@mutant("nothing is swept")
def _() -> Iterator[None]:
    with patched((PostgresSink, "sweep", lambda self, stream, held: None)):
        yield


# ---------------------------------------------------------------- an unknown outcome


def _on_unknown(act: Callable[[PostgresSink, Any, str], None]) -> Any:
    commit = PostgresSink.commit

    def acting(self: PostgresSink, slice_: Any, attempt: str, receipts: Any) -> Outcome:
        try:
            return commit(self, slice_, attempt, receipts)
        except CommitUnclear:
            act(self, slice_, attempt)
            raise

    return PostgresSink, "commit", acting


@mutant("what was staged is dropped on an unknown outcome")
def _() -> Iterator[None]:
    def tidy(self: PostgresSink, slice_: Any, attempt: str) -> None:
        name = Staging.of(self.options.own_schema, self.pipeline, slice_.stream, slice_.number, attempt)
        with self.writing.transaction() as connection:
            connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(name.sql))

    with patched(_on_unknown(tidy)):
        yield


@mutant("an unknown outcome is taken for a commit")
def _() -> Iterator[None]:
    commit = PostgresSink.commit

    def hopeful(self: PostgresSink, slice_: Any, attempt: str, receipts: Any) -> Outcome:
        try:
            return commit(self, slice_, attempt, receipts)
        except CommitUnclear:
            return Outcome()

    with patched((PostgresSink, "commit", hopeful)):
        yield
