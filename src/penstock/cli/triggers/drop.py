"""`penstock triggers drop`: drops the triggers of a pipeline, and with the last pipeline the outbox."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.shared.outbox_place import Place, change_document, outbox_place
from penstock.cli.shared.parameters import EnvFile, File, Json, Pipeline, Set, Yes

if TYPE_CHECKING:
    from penstock.sources.outbox.triggers import Existing


def drop(
    file: File,
    pipeline: Pipeline = None,
    of: Annotated[
        str | None,
        typer.Option(
            "--of", metavar="P", help="Another pipeline that uses the outbox, such as one that is gone from the file."
        ),
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option("--table", "-t", metavar="T", help="Only this table. May be repeated.", show_default=False),
    ] = None,
    set_: Set = None,
    _env_file: EnvFile = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Drop the triggers of a pipeline and its registrations. Triggers that another pipeline uses stay.

    \b
    Examples:
      penstock triggers drop images.yaml
      penstock triggers drop images.yaml --yes
      penstock triggers drop images.yaml --table public.posts
      penstock triggers drop images.yaml --of yesterday

    With the last pipeline that uses it, the outbox is dropped too, with every document that was not read. Asks for
    confirmation. Changes of the tables are not recorded any more: the pipeline cannot go on from its mark afterwards.

    With `--table`, only that table is released, and the pipeline stays registered: `penstock triggers apply` takes it
    again, and the table is loaded again. To change a table that two pipelines share, change it in both files,
    release it from one, and apply both. Changes are recorded all the time.
    """
    with outbox_place(file, set_, pipeline, "penstock triggers drop FILE", as_json=as_json) as place:
        from penstock.cli.shared.confirm import confirm
        from penstock.cli.shared.render import print_json
        from penstock.sources.outbox.applying import drop_triggers
        from penstock.sources.outbox.triggers import read_existing

        existing = read_existing(place.server.session.rows, place.options.outbox_schema)
        name = of or place.pipeline
        tables = _chosen(place, existing, name, table) if table else None
        confirm(_preview(place, existing, name, tables), yes=yes, to_stderr=as_json)
        changes = drop_triggers(place.server.writing, place.options, name, tables)
        if as_json:
            print_json({"pipeline": name, "changes": [change_document(each) for each in changes]}, indent=2)
            return
        for each in changes:
            print(each)
        print(f"{name}: made {len(changes)} change{'s' * (len(changes) != 1)}")


def _chosen(place: Place, existing: Existing, pipeline: str, tables: Sequence[str]) -> list[str]:
    """The tables by their full names; InputError for one that the pipeline has no triggers on."""
    from penstock.core.names import suggest
    from penstock.errors import UNTOUCHED, InputError
    from penstock.links.postgres.literals import TableName

    known = {name for owner, name, *_ in existing.owners if owner == pipeline}
    found = []
    for text in tables:
        try:
            found.append(str(TableName.read(text, place.options.default_schema)))
        except ValueError as error:
            raise InputError(str(error), safe=UNTOUCHED, next_step="correct --table") from None
        if found[-1] not in known:
            raise InputError(
                f"pipeline '{pipeline}' has no triggers on {found[-1]}; {suggest(found[-1], known, 'tables')}",
                safe=UNTOUCHED,
                next_step="correct --table",
            )
    return found


def _preview(place: Place, existing: Existing, pipeline: str, tables: Sequence[str] | None) -> list[str]:
    """What happens, for the confirmation; InputError for a pipeline that nobody knows."""
    from penstock.cli.shared.render import count
    from penstock.core.names import suggest
    from penstock.errors import UNTOUCHED, InputError
    from penstock.sources.outbox.facts import read_facts

    if not existing.outbox:
        return [f"There is no outbox in schema {place.options.outbox_schema}: there is nothing to drop."]
    facts = read_facts(place.server)
    known = {owner for owner, *_ in existing.owners} | {each.pipeline for each in facts.consumers}
    if pipeline not in known and pipeline != place.pipeline:
        raise InputError(
            f"no pipeline '{pipeline}' uses the outbox; {suggest(pipeline, known, 'pipelines')}",
            safe=UNTOUCHED,
            next_step="correct --of; `penstock triggers status FILE` lists who reads it",
        )
    own = [row for row in existing.owners if row[0] == pipeline and (tables is None or row[1] in tables)]
    left = [row for row in existing.owners if row not in own]
    used = {name for *_, name in left}
    gone = sorted({row[1] for row in own if row[3] not in used})
    lines = [f"{pipeline}: the triggers on {', '.join(gone) or 'no table'} are dropped."]
    for _, name, _, function in own:
        if function in used:
            users = ", ".join(sorted({owner for owner, *_, each in left if each == function}))
            lines.append(f"{pipeline}: the triggers on {name} stay: {users} use them.")
    if tables is not None:
        return lines
    lines += [
        f"{pipeline}: its registration for {c.stream} is removed." for c in facts.consumers if c.pipeline == pipeline
    ]
    others = sorted(({owner for owner, *_ in left} | {c.pipeline for c in facts.consumers}) - {pipeline})
    if others:
        return [*lines, f"The outbox stays: {', '.join(others)} use it."]
    return [*lines, f"The outbox is dropped, with about {count(facts.rows, 'document')}."]
