"""Why the server would not take a row, in words that never quote a value."""

from __future__ import annotations

import re
from collections.abc import Mapping

import psycopg

from penstock.links.postgres.failures import first_line
from penstock.sinks.postgres.filling import Unfit

#: classes and codes of SQLSTATE that mean the row: data, integrity, a view's check, a trigger's own, an index' limit
_OF_A_ROW = ("22", "23", "44000", "P0001", "54000")
_CONSTRAINTS: Mapping[str, str] = {
    "23502": "may not be NULL",
    "23503": "a foreign key is not met",
    "23505": "a value is there already that must be unique",
    "23514": "a check is not met",
    "23P01": "it excludes a row that is there",
}
_VALUES: Mapping[str, str] = {
    "22001": "a text is too long",
    "22003": "a number is out of range",
    "22007": "a value cannot be read as a date or time",
    "22008": "a date or time is out of range",
    "22021": "a text has a character that the database cannot hold",
    "22P05": "a text has a character that the database cannot hold",
}
_TYPE = re.compile(r"\btype ([a-z][\w ]*?)(?:\(|:|$)")


def is_of_a_row(error: BaseException) -> bool:
    """Whether a row is at fault, so that the rest of its slice could go in without it."""
    return isinstance(error, Unfit) or (isinstance(error, psycopg.Error) and code_of(error).startswith(_OF_A_ROW))


def code_of(error: psycopg.Error | Unfit) -> str:
    return (error.sqlstate or "") if isinstance(error, psycopg.Error) else ""


def reason_of(error: psycopg.Error | Unfit, column: str | None = None) -> str:
    """What a row was not taken for; the server's own words quote values, and are not used."""
    if isinstance(error, Unfit):
        return str(error)
    state, diag = code_of(error), error.diag
    named = f" ({diag.constraint_name})" if diag.constraint_name else ""
    where = diag.column_name or column
    at = f"column {where}: " if where else ""
    if state.startswith("23"):
        return f"{at}{_CONSTRAINTS.get(state, 'a constraint is not met')}{named}"
    if state in _VALUES:
        return f"{at}{_VALUES[state]}"
    if state.startswith("22"):
        type_ = _TYPE.search(diag.message_primary or "")
        return f"{at}a value cannot be read as {type_[1] if type_ else 'the type of its column'}"
    if state == "54000":
        return f"{at}a value is too long for an index"
    return first_line(str(error))
