"""`penstock triggers apply`: makes the database's triggers those of the file, in one transaction."""

from __future__ import annotations

from penstock.cli.shared.outbox_place import change_document, outbox_place
from penstock.cli.shared.parameters import EnvFile, File, Json, Pipeline, Set


def apply(
    file: File,
    pipeline: Pipeline = None,
    set_: Set = None,
    _env_file: EnvFile = None,
    as_json: Json = False,
) -> None:
    """Create, replace, enable and drop triggers until they are those of the file. All of it, or nothing.

    \b
    Examples:
      penstock triggers apply images.yaml
      penstock triggers apply images.yaml --set source.lock_timeout=30

    The first time, it also creates the outbox. Where nothing differs, it changes nothing and locks no table. Needs
    the owner of the tables. It waits `lock_timeout` for writers of a table to end their transactions.
    """
    with outbox_place(file, set_, pipeline, "penstock triggers apply FILE", as_json=as_json) as place:
        from penstock.cli.shared.render import count, print_json
        from penstock.sources.outbox.applying import apply_triggers

        resolved = place.resolve()
        changes = apply_triggers(place.server.writing, place.options, place.pipeline, resolved)
        if as_json:
            print_json({"pipeline": place.pipeline, "changes": [change_document(each) for each in changes]}, indent=2)
            return
        for each in changes:
            print(each)
        tables = count(len(resolved.tables), "table")
        if changes:
            print(f"{place.pipeline}: made {count(len(changes), 'change')} to the triggers of {tables}")
        else:
            print(f"{place.pipeline}: the triggers of {tables} are those of the file; nothing was changed")
