"""How a cursor is kept, and so what a horizon can be worth: proven from the catalog, or assumed, and why.

Proven is what the database itself enforces. What holds only as long as writers behave is an assumption, in words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from psycopg import sql

from penstock.errors import StreamFailed
from penstock.links.postgres.connection import Session
from penstock.links.postgres.literals import TableName, load_statement, quote, to_text
from penstock.links.postgres.types import without_modifier
from penstock.sources.postgres.catalog import ROOM
from penstock.sources.postgres.content import TableContent
from penstock.sources.postgres.horizon.bodies import Expression, assignments, reads_the_clock, starts
from penstock.sources.postgres.horizon.triggers import Trigger, keeper
from penstock.sources.postgres.relations import KINDS

#: activity: by the beginnings of open transactions; holders: by who held a lock to write when a place was seen
Method = Literal["activity", "holders"]

_STANDBY = "this server is a standby, and cannot see what transactions are open on its primary"
_VERBS = {"insert": "INSERT", "update": "UPDATE"}


@dataclass(frozen=True, slots=True)
class Proof:
    """What a stream's horizon rests on."""

    method: Method
    #: nothing below the horizon can still appear, by the database's own rules
    proven: bool
    #: what must hold where it is not proven, in words
    assumptions: tuple[str, ...]
    #: what would raise it: a statement to run, or words; None: nothing that we know
    would_raise: str | None
    #: whether the server shows us what other users do
    sees_all: bool = True
    #: the table has rows of its own or in partitions, and so locks that tell who writes
    lockable: bool = True
    #: the trigger that sets the cursor to the time with every update; None: there is none for certain
    keeper: str | None = None


@dataclass(frozen=True, slots=True)
class Leaf:
    """Something that holds rows: a table, or partitions of one that are kept alike."""

    kind: str
    identity: str
    generated: bool
    #: a subscription writes it, in sessions where ordinary triggers do not fire
    fed: bool
    triggers: tuple[Trigger, ...]

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> Leaf:
        triggers = tuple(Trigger(**trigger) for trigger in said["triggers"])
        return cls(said["kind"], said["identity"], said["generated"], said["fed"], triggers)


@dataclass(frozen=True, slots=True)
class Kept:
    """How the catalog says that a column is kept."""

    kind: str
    standby: bool
    sees_all: bool
    identity: str
    default: str | None
    sequence: Mapping[str, Any] | None
    leaves: tuple[Leaf, ...]


def prove(session: Session, stream: str, content: TableContent) -> Proof:
    """What can be proven of a stream's cursor; asks the catalog once."""
    cursor = content.key[0]
    query = load_statement(ROOM, "kept").format(
        name=sql.Literal(to_text(content.table.sql)), column=sql.Literal(cursor.column)
    )
    rows = session.rows(query, table=str(content.table), stream=stream)
    if not rows:
        raise StreamFailed(
            f"{cursor.column} of {content.table} is gone", next_step="bring the column back", stream=stream
        )
    said = rows[0][0]
    kept = Kept(**said | {"leaves": tuple(map(Leaf.read, said["leaves"]))})
    return judged(kept, content.table, cursor.column, cursor.type)


def judged(kept: Kept, table: TableName, column: str, type_: str) -> Proof:
    """What follows from how a column is kept."""
    timed = without_modifier(type_) == "timestamp with time zone"
    method: Method = "activity" if timed else "holders"
    lockable = kept.kind in ("r", "p")
    raises = None
    if not lockable:
        reasons = [f"rows come into {table}, a {KINDS[kept.kind]}, in the order of {column}"]
    elif not kept.leaves:
        reasons = [f"{table} has no partition yet that would show how {column} is kept"]
    else:
        reasons = list(_stamps(kept, column) if timed else _numbers(kept, column))
        raises = (_stamp_statement if timed else _number_statement)(kept, table, column) if reasons else None
    if kept.standby:
        reasons, raises = [*reasons, _STANDBY], raises or "read from the primary"
    keeper_ = _keeper(kept, column) if lockable else None
    return Proof(method, not reasons, tuple(dict.fromkeys(reasons)), raises, kept.sees_all, lockable, keeper_)


def _keeper(kept: Kept, column: str) -> str | None:
    """The trigger that sets a column with every update, wherever the rows are and whoever writes them."""
    found = [
        keeper(leaf.triggers, column, replica=replica)
        for leaf in kept.leaves
        for replica in ((False, True) if leaf.fed else (False,))
    ]
    return next((trigger.name for trigger in found if trigger), None) if all(found) else None


# ---------------------------------------------------------------- times


def _stamps(kept: Kept, column: str) -> Iterator[str]:
    """What must be assumed of a timestamptz; nothing, if triggers set it to the beginning of the transaction."""
    for leaf in kept.leaves:
        if leaf.kind == "f":
            yield "a partition is a foreign table, whose transactions are another server's"
            continue
        for event in ("insert", "update"):
            yield from _stamp(leaf, kept, column, event, replica=False)
        if leaf.fed:
            for event in ("insert", "update"):
                if list(_stamp(leaf, kept, column, event, replica=True)):
                    yield "a subscription writes the table, and brings times of another server"


def _stamp(leaf: Leaf, kept: Kept, column: str, event: str, *, replica: bool) -> Iterator[str]:
    """What must be assumed of one kind of write; nothing, if its last word is the transaction's beginning."""
    last: str | None = f"the application stamps {column} not earlier than its transaction began"
    if event == "insert" and kept.default and starts(_expression(kept.default)):
        last = f"no INSERT names {column} itself (its default, {kept.default}, is right)"
    for trigger in leaf.triggers:
        if trigger.fires(event, replica=replica):
            last = _after(trigger, column, event, last)
    if last is not None:
        yield last


def _after(trigger: Trigger, column: str, event: str, before: str | None) -> str | None:
    """What must be assumed once a trigger has seen the row; `before`: what had to be until then."""
    value = trigger.sets(column)
    if value is False:
        return before
    if value is True:
        return f"the trigger {trigger.name} leaves {column} at or after the beginning of its transaction"
    assert isinstance(value, tuple)
    if starts(value):
        return None if trigger.always else before
    if reads_the_clock(value) and (trigger.always or before is None):
        return f"the server's clock never steps back (the trigger {trigger.name} stamps with {''.join(value)})"
    when = f"with every {_VERBS[event]}"
    return f"the trigger {trigger.name} stamps {column} not earlier than its transaction began, {when}"


def _stamp_statement(kept: Kept, table: TableName, column: str) -> str:
    """What would prove a timestamptz. The last trigger by name has the last word."""
    taken = [trigger.name for leaf in kept.leaves for trigger in leaf.triggers]
    last = "zz_stamp"
    while any(each >= last for each in taken):
        last = f"z{last}"
    function = f"{quote(table.schema)}.{quote(f'stamp_{column}')}"
    always = any(leaf.fed for leaf in kept.leaves)
    made = (
        f"CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN NEW.{quote(column)} := now(); RETURN NEW; END $$; "
        f"CREATE TRIGGER {last} BEFORE INSERT OR UPDATE ON {_plain(table)} "
        f"FOR EACH ROW EXECUTE FUNCTION {function}();"
    )
    return f"{made} ALTER TABLE {_plain(table)} ENABLE ALWAYS TRIGGER {last};" if always else made


def _expression(text: str) -> Expression:
    found = assignments(f"BEGIN NEW.x := {text}; RETURN NEW; END")
    return found["x"] if found else ()


# ---------------------------------------------------------------- numbers, and all the rest


def _numbers(kept: Kept, column: str) -> Iterator[str]:
    """What must be assumed of any other cursor; nothing, if only an uncached sequence can fill it in."""
    sequence = kept.sequence or {}
    if kept.identity != "a":
        if kept.identity == "d" or "nextval(" in (kept.default or ""):
            yield f"nobody fetches values of {column} ahead, or writes it themselves"
        else:
            yield f"a value of {column} is taken only once its transaction has begun to write the table, and only grows"
    if sequence.get("cache", "1") != "1":
        yield f"sessions do not overtake each other: each fetches {sequence['cache']} values of {column} ahead"
    if sequence.get("increment", "1").startswith("-") or sequence.get("cycle"):
        yield f"{column} only grows: its sequence can go down"
    for leaf in kept.leaves:
        yield from _filled(leaf, kept, column)


def _filled(leaf: Leaf, kept: Kept, column: str) -> Iterator[str]:
    if leaf.fed:
        yield "a subscription writes the table, and brings numbers of another server"
    if kept.identity != "a":
        return
    if leaf.identity != "a":
        yield f"nobody writes into a partition directly, where {column} is a column like others"
    for trigger in leaf.triggers:
        if trigger.enabled != "D" and trigger.sets(column) is not False:
            yield f"the trigger {trigger.name} leaves {column} as it is"


def _number_statement(kept: Kept, table: TableName, column: str) -> str | None:
    sequence = kept.sequence
    if sequence and (sequence["cache"] != "1" or sequence["cycle"]):
        return f"ALTER SEQUENCE {sequence['name']} CACHE 1 NO CYCLE;"
    if kept.identity == "d":
        return f"ALTER TABLE {_plain(table)} ALTER COLUMN {quote(column)} SET GENERATED ALWAYS;"
    if "nextval(" in (kept.default or ""):
        return (
            f"ALTER TABLE {_plain(table)} ALTER COLUMN {quote(column)} DROP DEFAULT, ALTER COLUMN {quote(column)} "
            "ADD GENERATED ALWAYS AS IDENTITY (START WITH n);, with n above every value there is"
        )
    return None


def _plain(table: TableName) -> str:
    return table.quoted
