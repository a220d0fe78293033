"""`penstock triggers drop`: drops the triggers of a pipeline, and with the last pipeline the outbox."""

from __future__ import annotations

from penstock.cli.shared.outbox_place import change_document, outbox_place
from penstock.cli.shared.parameters import EnvFile, File, Json, Pipeline, Set, Yes


def drop(
    file: File,
    pipeline: Pipeline = None,
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

    With the last pipeline that uses it, the outbox is dropped too, with every document that was not read. Asks for
    confirmation. Changes of the tables are not recorded any more: the pipeline cannot go on from its mark afterwards.
    """
    with outbox_place(file, set_, pipeline, "penstock triggers drop FILE", as_json=as_json) as place:
        from penstock.cli.shared.confirm import confirm
        from penstock.cli.shared.render import count, print_json
        from penstock.sources.outbox.applying import drop_triggers
        from penstock.sources.outbox.facts import read_facts
        from penstock.sources.outbox.triggers import read_existing

        schema = place.options.outbox_schema
        existing = read_existing(place.server.session.rows, schema)
        lines = [f"There is no outbox in schema {schema}: there is nothing to drop."]
        if existing.outbox:
            facts = read_facts(place.server)
            tables = sorted({name for owner, name, _, _ in existing.owners if owner == place.pipeline})
            others = sorted({owner for owner, *_ in existing.owners if owner != place.pipeline})
            lines = [f"{place.pipeline}: the triggers on {', '.join(tables) or 'no table'} are dropped."]
            lines.append(
                f"The outbox stays: {', '.join(others)} use it."
                if others
                else f"The outbox is dropped, with about {count(facts.rows, 'document')}."
            )
        confirm(lines, yes=yes, to_stderr=as_json)
        changes = drop_triggers(place.server.writing, place.options, place.pipeline)
        if as_json:
            print_json({"pipeline": place.pipeline, "changes": [change_document(each) for each in changes]}, indent=2)
            return
        for each in changes:
            print(each)
        print(f"{place.pipeline}: made {count(len(changes), 'change')}")
