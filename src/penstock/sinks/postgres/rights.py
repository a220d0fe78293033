"""Whether the role may make and write penstock's own tables: asked before a run needs it, with the GRANT to run."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

from penstock.errors import InputError
from penstock.links.postgres.literals import load_statement, quote
from penstock.sinks.postgres.ledger import ROOM


def must_be_allowed(connection: psycopg.Connection[Any], schema: str, *, pipeline: str) -> None:
    """InputError if the role lacks a right on the schema of the ledger and of staged rows."""
    row = connection.execute(load_statement(ROOM, "rights").format(schema=sql.Literal(schema))).fetchone()
    assert row
    role, database, may_make, there, may_use, may_create, lacking = row
    to, at = quote(role), quote(schema)
    if not there:
        if not may_make:
            raise InputError(
                f"the role {role} may not create the schema {schema} in database {database}, where the sink keeps its "
                "ledger and stages rows",
                next_step=f"run as the database's owner: GRANT CREATE ON DATABASE {quote(database)} TO {to};",
                pipeline=pipeline,
            )
        return
    grants = []
    rights = [name for name, given in (("USAGE", may_use), ("CREATE", may_create)) if not given]
    if rights:
        grants.append(f"GRANT {', '.join(rights)} ON SCHEMA {at} TO {to};")
    grants += [f"GRANT {', '.join(rights)} ON {at}.{table} TO {to};" for table, rights in sorted(lacking.items())]
    if grants:
        raise InputError(
            f"the role {role} may not write in the schema {schema} of database {database}, where the sink keeps its "
            "ledger and stages rows",
            next_step=f"run as the schema's owner: {' '.join(grants)}",
            pipeline=pipeline,
        )
