"""`penstock triggers status`: how the triggers differ from the file, how full the outbox is, who reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from penstock.cli.shared.outbox_place import change_document, outbox_place
from penstock.cli.shared.parameters import EnvFile, File, Json, Pipeline, Set

if TYPE_CHECKING:
    from penstock.sources.outbox.facts import OutboxFacts


def status(
    file: File,
    pipeline: Pipeline = None,
    set_: Set = None,
    _env_file: EnvFile = None,
    as_json: Json = False,
) -> None:
    """Show whether the triggers are those of the file, the size of the outbox, and how far each consumer is.

    \b
    Examples:
      penstock triggers status images.yaml
      penstock triggers status images.yaml --json | jq '.changes | length'

    Names every trigger that is missing, disabled or changed by hand, a table that was created again, and the
    transaction that holds back the deletion of documents. Ends with 2 if the triggers differ. Changes nothing.
    """
    with outbox_place(file, set_, pipeline, "penstock triggers status FILE", as_json=as_json) as place:
        from penstock.cli.shared.render import print_json
        from penstock.sources.outbox.applying import plan_triggers
        from penstock.sources.outbox.facts import read_facts

        resolved = place.resolve()
        changes = plan_triggers(place.server.session, place.options, place.pipeline, resolved).changes
        there = not any(each.what == "create" and not each.table for each in changes)
        facts = read_facts(place.server) if there else None
        if as_json:
            document: dict[str, Any] = {
                "pipeline": place.pipeline,
                "tables": [str(table.name) for table in resolved.tables],
                "changes": [change_document(each) for each in changes],
                "outbox": facts.document() if facts else None,
            }
            print_json(document, indent=2)
        else:
            for table in resolved.tables:
                mine = [each for each in changes if each.table == str(table.name)]
                print(f"{table.name}: " + ("as in the file" if not mine else f"{len(mine)} differences"))
                print(*(f"  {each.about}: {each.why}" for each in mine), sep="\n", end="\n" if mine else "")
            print(*(f"{each.about}: {each.why}" for each in changes if not each.table), sep="\n", end="")
            print("\n".join(_lines(facts)) if facts else "")
        if changes:
            raise typer.Exit(2)


def _lines(facts: OutboxFacts) -> list[str]:
    from penstock.cli.shared.render import count
    from penstock.sources.outbox.registry import GONE_SECONDS

    lines = [f"outbox: about {count(facts.rows, 'document')}, {facts.bytes / 2**20:,.1f} MiB"]
    if facts.oldest_seconds is not None:
        lines[0] += f", the oldest {facts.oldest_seconds:,.0f} s old"
    for each in facts.consumers:
        lines.append(
            f"{each.pipeline}/{each.stream}: {count(each.behind, 'document')} not certainly read, "
            f"registered {each.seconds:,.0f} s ago"
        )
        if each.behind and each.seconds > GONE_SECONDS:
            lines.append(
                f"  if it is gone, `penstock triggers drop FILE --of {each.pipeline}` removes its registration"
            )
    for stream in facts.unread:
        lines.append(f"{stream}: no pipeline reads it: its documents are kept; `penstock run` registers one")
    if facts.blocker is not None:
        lines.append(f"no document after the beginning of this transaction is deleted: {facts.blocker}")
    return lines
