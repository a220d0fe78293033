"""The pipeline file for a configuration of rustream, with a comment on everything that means something else here."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.cli.imports.rustream_config import Config, Output, Table, folder_of
from penstock.cli.imports.rustream_state import stream_of
from penstock.cli.init.file_text import INDENT, Variable, comment, scalar, value
from penstock.errors import ConfigError, InputError

#: added to the folder, or to the pipeline's name, of tables that are read whole
WHOLE = "_whole"


def pipeline_of(config: Config) -> str:
    """The pipeline that continues behind the watermarks."""
    return re.sub(r"[^A-Za-z0-9_]", "_", config.postgres.database) or "rustream"


def write_file(config: Config, path: str, url_env: str) -> list[str]:
    """Write the file, unless there is one; what was done, a line each."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", url_env):
        raise InputError(
            f"{url_env!r} is not a valid name of an environment variable", next_step="use letters, digits and _"
        )
    text = file_text(config, os.path.dirname(os.path.abspath(path)), url_env)
    try:
        with Path(path).open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return [f"{path} is there and stays as it is."]
    except OSError as error:
        raise InputError(
            f"{path} cannot be written: {error.strerror}", next_step="name another file with --output"
        ) from None
    return [f"{path} was written. Its comments say what differs from rustream."]


def file_text(config: Config, folder: str, url_env: str) -> str:
    """The whole file, for a folder."""
    at = config.postgres
    opening = [
        "Made from a configuration of rustream.",
        f"{url_env} holds the URL: postgresql://{at.user}:PASSWORD@{at.host}:{at.port}/{at.database}. The password of "
        "the configuration was not copied."
        if at.password
        else f"{url_env} holds the URL: postgresql://{at.user}@{at.host}:{at.port}/{at.database}.",
        *_remarks(config),
    ]
    lines = [line for text in opening for line in comment(text, "")]
    lines.append("pipelines:")
    source: dict[str, Any] = {"type": "postgres", "url": Variable(url_env)}
    tables = config.tables or []
    followed = [each for each in tables if each.key]
    whole = [each for each in tables if not each.key]
    if followed:
        lines += _pipeline(pipeline_of(config), source, _sink(config, folder, ""))
        lines += ["    streams:", *(line for each in followed for line in _stream(each, config))]
    if whole or not tables:
        lines += [""] if followed else []
        lines += comment(
            "Tables without `incremental_column` are read whole in every run. rustream adds each copy to the last one; "
            "here a reader of `current` sees the newest copy, and it alone. So they have a folder of their own.",
            "  ",
        )
        if not tables:
            source |= {"schema": config.schema_} | ({"exclude": config.exclude} if config.exclude else {})
        lines += _pipeline(pipeline_of(config) + WHOLE, source, _sink(config, folder, WHOLE))
        if tables:
            lines += ["    streams:", *(line for each in whole for line in _stream(each, config))]
        else:
            lines += comment("Without `streams`, every table of the schema that has a primary key is read.", "    ")
    return "\n".join(lines) + "\n"


def _remarks(config: Config) -> list[str]:
    """What holds for the whole file."""
    said = []
    if config.batch_size is not None:
        said.append(
            f"batch_size: {config.batch_size} rows made one file of rustream. Here slices are cut by bytes: see "
            "`slice_bytes`."
        )
    if config.tables and config.exclude:
        said.append("exclude: rustream uses it only without `tables`; it is left out.")
    if config.ingest is not None:
        said.append("ingest: files into Postgres are a pipeline of their own; it is left out.")
    if config.format == "iceberg":
        said.append(
            "format: iceberg: rustream's tables stay as they are. penstock makes tables of its own in the same "
            "warehouse, which hold what came after the watermarks. To have all rows in them, import with --file-only."
        )
    else:
        said.append(
            "Types are exact here. A column that rustream wrote as text or as a float (numeric, json, uuid) may have "
            "another type in new files: a reader of both must allow for that."
        )
    return said + [f"{key}: rustream does not know this key; it is left out." for key in config.unknown_keys]


def _sink(config: Config, folder: str, suffix: str) -> dict[str, Any]:
    output = config.output
    assert output is not None
    if config.format == "iceberg":
        if (config.catalog or {}).get("type", "filesystem") != "filesystem":
            raise ConfigError(
                "the configuration uses a Glue catalog, which `penstock import` does not take over",
                safe="Nothing was written.",
                next_step="write the pipeline file by hand: `penstock init --sink lake` proposes the streams",
            )
        return {"type": "lake", "warehouse": f"{config.warehouse}{suffix}"}
    if output.type == "s3":
        return {"type": "files", "directory": f"s3://{output.bucket}/{output.prefix.strip('/')}{suffix}"} | _reach(
            output
        )
    return {"type": "files", "directory": f"{folder_of(config, folder)}{suffix}"}


def _reach(output: Output) -> dict[str, Any]:
    """How a bucket is reached, as the configuration says it. Both look for credentials as Amazon's SDK does."""
    known = {"region": output.region, "endpoint": output.endpoint}
    given = {name: setting for name, setting in known.items() if setting}
    return {"s3": given} if given else {}


def _pipeline(name: str, source: Mapping[str, Any], sink: Mapping[str, Any]) -> list[str]:
    lines = [f"  {scalar(name, key=True)}:"]
    for side, options in (("source", source), ("sink", sink)):
        lines.append(f"    {side}:")
        lines += [f"      {key}: {value(setting)}" for key, setting in options.items()]
    return lines


def _stream(table: Table, config: Config) -> list[str]:
    said = []
    if table.partition_by:
        said.append(
            f"partition_by: {table.partition_by}: rustream makes folders by the time of its run; `partition_by` of "
            "the stream makes them by a column. It is left out."
        )
    if len(table.key) == 1 and not table.incremental_column_is_unique:
        said.append("rustream refuses this table: it has no tiebreaker. `penstock check` says what is needed.")
    options = _options(table, config)
    lines = [line for text in said for line in comment(text, INDENT)]
    name = scalar(stream_of(table, config), key=True)
    return [*lines, f"{INDENT}{name}: {value(options)}"]


def _options(table: Table, config: Config) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if table.schema_ or stream_of(table, config) != table.name:
        options["table"] = f"{_quoted(table.schema_ or 'public')}.{_quoted(table.name)}"
    elif not re.fullmatch(r"[^\".]+", table.name):
        options["table"] = _quoted(table.name)
    if table.key:
        options["cursor"] = table.key[0]
        if len(table.key) > 1:
            options["tiebreaker"] = table.key[1]
        elif table.incremental_column_is_unique:
            options["unique"] = True
    if table.columns:
        options["columns"] = _all_columns(table)
    return options


def _all_columns(table: Table) -> Sequence[str]:
    return list(dict.fromkeys([*(table.columns or ()), *table.key]))


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[^\".]+", name) else '"' + name.replace('"', '""') + '"'
