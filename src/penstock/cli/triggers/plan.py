"""`penstock triggers plan`: prints the SQL that `apply` would run. Changes nothing."""

from __future__ import annotations

from penstock.cli.shared.outbox_place import change_document, outbox_place
from penstock.cli.shared.parameters import EnvFile, File, Json, Pipeline, Set


def plan(
    file: File,
    pipeline: Pipeline = None,
    set_: Set = None,
    _env_file: EnvFile = None,
    as_json: Json = False,
) -> None:
    """Print what `apply` would change in the database, with the SQL of each change. Changes nothing.

    \b
    Examples:
      penstock triggers plan images.yaml
      penstock triggers plan images.yaml --json | jq -r '.changes[].sql[]'

    Checks every table, column and expression of the file against the database, and lists every problem.
    """
    with outbox_place(file, set_, pipeline, "penstock triggers plan FILE", as_json=as_json) as place:
        from penstock.cli.shared.render import count, print_json
        from penstock.links.postgres.literals import to_text
        from penstock.sources.outbox.applying import plan_triggers

        changes = plan_triggers(place.server.session, place.options, place.pipeline, place.resolve()).changes
        if as_json:
            print_json({"pipeline": place.pipeline, "changes": [change_document(each) for each in changes]}, indent=2)
            return
        for each in changes:
            statements = [to_text(statement).strip().rstrip(";") + ";" for statement in each.statements]
            print(f"-- {each}", *statements, "", sep="\n")
        if changes:
            print(f"-- {count(len(changes), 'change')}; `penstock triggers apply {file}` makes them in one transaction")
        else:
            print("The triggers in the database are those of the file.")
