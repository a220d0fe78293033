"""What the catalog proves about a cursor's values, and what a horizon has to assume about them.

A fact is proven if the database enforces it. A fact that depends on the writers is an assumption.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from penstock.errors import StreamFailed
from penstock.links.postgres.literals import quote
from penstock.links.postgres.tables import KINDS, Column, Leaf, Table
from penstock.links.postgres.triggers import Expression, Trigger, is_clock, is_transaction_start, read_assignments
from penstock.links.postgres.types import without_modifier
from penstock.sources.postgres.stream import TableStream

#: activity: by the start of open transactions; holders: by the transactions that held a lock to write
Method = Literal["activity", "holders"]

_STANDBY = "this server is a standby, and cannot see what transactions are open on its primary"


@dataclass(frozen=True, slots=True)
class Proof:
    """The basis of a stream's horizon."""

    method: Method
    #: the database enforces that no row can still appear below the horizon
    proven: bool
    #: the assumptions if it is not proven, for messages
    assumptions: tuple[str, ...]
    #: what would prove it: a statement to run, or an advice; None: nothing known
    remedy: str | None
    #: the table or its partitions have locks that show who writes
    lockable: bool = True
    #: the trigger that sets the cursor to the time of every update; None: there is none for certain
    stamping_trigger: str | None = None


def prove(stream: TableStream) -> Proof:
    """Find out what is proven about a stream's cursor; asks the catalog once."""
    cursor = stream.content.key[0]
    table = stream.describe((cursor.column,), writers=True)
    column = table.column(cursor.column) if table else None
    if table is None or column is None:
        raise StreamFailed(
            f"{cursor.column} of {stream.content.table} was dropped", next_step="restore the column", stream=stream.name
        )
    return prove_cursor(table, column, standby=stream.session.server.standby)


def prove_cursor(table: Table, column: Column, *, standby: bool = False) -> Proof:
    """Derive what is proven about a column from the description of its table."""
    timed = without_modifier(column.type) == "timestamp with time zone"
    lockable = table.kind in ("r", "p")
    remedy = None
    if not lockable:
        assumptions = [f"rows come into {table.name}, a {KINDS[table.kind]}, in the order of {column.name}"]
    elif not table.leaves:
        assumptions = [f"{table.name} has no partition yet that would show how {column.name} is set"]
    else:
        assumptions = list((_time_assumptions if timed else _number_assumptions)(table, column))
        remedy = (_time_remedy if timed else _number_remedy)(table, column) if assumptions else None
    if standby:
        assumptions, remedy = [*assumptions, _STANDBY], remedy or "read from the primary"
    stamping = table.stamping_trigger(column.name) if lockable else None
    return Proof(
        method="activity" if timed else "holders",
        proven=not assumptions,
        assumptions=tuple(dict.fromkeys(assumptions)),
        remedy=remedy,
        lockable=lockable,
        stamping_trigger=stamping.name if stamping else None,
    )


# ---------------------------------------------------------------- timestamps


def _time_assumptions(table: Table, column: Column) -> Iterator[str]:
    """The assumptions about a timestamptz; none if triggers set it to the start of the transaction."""
    for leaf in table.leaves:
        if leaf.kind == "f":
            yield "a partition is a foreign table, whose transactions are another server's"
            continue
        for event in ("insert", "update"):
            assumption = _event_assumption(leaf, column, event, replica=False)
            if assumption:
                yield assumption
        if leaf.subscribed and any(_event_assumption(leaf, column, e, replica=True) for e in ("insert", "update")):
            yield "a subscription writes the table, and brings times of another server"


def _event_assumption(leaf: Leaf, column: Column, event: str, *, replica: bool) -> str | None:
    """The assumption about one kind of write; None if it always sets the transaction's start in the end."""
    default = column.default
    assumption: str | None = f"the application stamps {column.name} not earlier than its transaction began"
    if event == "insert" and default and is_transaction_start(_parse_expression(default)):
        assumption = f"no INSERT names {column.name} itself (its default, {default}, is right)"
    for trigger in leaf.triggers:
        if trigger.fires(event, replica=replica):
            assumption = _assumption_after(trigger, column.name, event, assumption)
    return assumption


def _assumption_after(trigger: Trigger, column: str, event: str, before: str | None) -> str | None:
    """The assumption after a trigger has seen the row; `before`: the one until then."""
    value = trigger.sets(column)
    if value is False:
        return before
    if value is True:
        return f"the trigger {trigger.name} leaves {column} at or after the start of its transaction"
    assert isinstance(value, tuple)
    if is_transaction_start(value):
        return None if trigger.always else before
    if is_clock(value) and (trigger.always or before is None):
        return f"the server's clock never steps back (the trigger {trigger.name} stamps with {''.join(value)})"
    when = f"with every {event.upper()}"
    return f"the trigger {trigger.name} stamps {column} not earlier than its transaction began, {when}"


def _time_remedy(table: Table, column: Column) -> str:
    """The statement that would prove a timestamptz. The last trigger by name has the last word."""
    name = table.name
    taken = [trigger.name for leaf in table.leaves for trigger in leaf.triggers]
    last = "zz_stamp"
    while any(each >= last for each in taken):
        last = f"z{last}"
    function = f"{quote(name.schema)}.{quote(f'stamp_{column.name}')}"
    create = (
        f"CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN NEW.{quote(column.name)} := now(); RETURN NEW; END $$; "
        f"CREATE TRIGGER {last} BEFORE INSERT OR UPDATE ON {name.quoted} "
        f"FOR EACH ROW EXECUTE FUNCTION {function}();"
    )
    subscribed = any(leaf.subscribed for leaf in table.leaves)
    return f"{create} ALTER TABLE {name.quoted} ENABLE ALWAYS TRIGGER {last};" if subscribed else create


def _parse_expression(text: str) -> Expression:
    values = read_assignments(f"BEGIN NEW.x := {text}; RETURN NEW; END")
    return values["x"] if values else ()


# ---------------------------------------------------------------- numbers and all other types


def _number_assumptions(table: Table, column: Column) -> Iterator[str]:
    """The assumptions about any other cursor; none if only an uncached sequence can set it."""
    name, sequence, identity = column.name, table.sequence, column.identity
    if identity != "a":
        if column.numbered:
            yield f"nobody fetches values of {name} ahead, or writes it themselves"
        else:
            yield f"a value of {name} is taken only once its transaction has begun to write the table, and only grows"
    if sequence and sequence.cache != 1:
        yield f"sessions do not overtake each other: each fetches {sequence.cache} values of {name} ahead"
    if sequence and sequence.descends:
        yield f"{name} only grows: its sequence can go down"
    for leaf in table.leaves:
        if leaf.subscribed:
            yield "a subscription writes the table, and brings numbers of another server"
        if identity != "a":
            continue
        if leaf.identity != "a":
            yield f"nobody writes into a partition directly, where {name} is an ordinary column"
        for trigger in leaf.triggers:
            if trigger.enabled != "D" and trigger.sets(name) is not False:
                yield f"the trigger {trigger.name} leaves {name} as it is"


def _number_remedy(table: Table, column: Column) -> str | None:
    sequence, name, table_name = table.sequence, quote(column.name), table.name.quoted
    if sequence and (sequence.cache != 1 or sequence.cycles):
        return f"ALTER SEQUENCE {sequence.name} CACHE 1 NO CYCLE;"
    if column.identity == "d":
        return f"ALTER TABLE {table_name} ALTER COLUMN {name} SET GENERATED ALWAYS;"
    if "nextval(" in (column.default or ""):
        return (
            f"ALTER TABLE {table_name} ALTER COLUMN {name} DROP DEFAULT, ALTER COLUMN {name} "
            "ADD GENERATED ALWAYS AS IDENTITY (START WITH n);, with n above every existing value"
        )
    return None
