"""The likeliest mistakes in a pipeline file, each with its line, its key and what to write instead, word for word.

Read with the real sources and sinks, as the command reads it. Each is one change to the file below.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock import config, sinks, sources
from penstock.errors import ConfigError

GOOD = """\
store: .penstock/store.db
pipelines:
  shop:
    source:
      type: postgres
      url: "${DATABASE_URL}"
      schema: public
    sink:
      type: files
      directory: out
    slice_bytes: 64MiB
    streams:
      orders:
        cursor: updated_at
        tiebreaker: id
      customers: {cursor: updated_at, tiebreaker: id}
"""
URL = "postgresql://ann:hunter2@db/shop"


@dataclass(frozen=True)
class Likely:
    """One mistake."""

    name: str
    #: what is written, and what is written instead
    right: str
    wrong: str
    line: int
    #: the key that the message names; empty: there is none to name
    key: str
    problem: str
    suggestion: str

    @property
    def text(self) -> str:
        assert self.right in GOOD
        return GOOD.replace(self.right, self.wrong, 1)

    @property
    def message(self) -> str:
        key = f"{self.key}: " if self.key else ""
        return f"{self.line}: {key}{self.problem}{self.suggestion}"


SHOP, SOURCE, SINK, STREAMS = "pipelines.shop", "pipelines.shop.source", "pipelines.shop.sink", "pipelines.shop.streams"
SOURCE_KEYS = (
    "application_name, connect_timeout, connections, discover, exclude, horizon, replica, replica_wait, schema, "
    "statement_timeout, timeline, tls, type, url"
)
SCHEMA = "schema: public"
ADDRESS = '"${DATABASE_URL}"'
SIZE = "expected a size such as 256MiB, 1.5GB or a number of bytes"
VARIABLE = "write ${NAME}, ${NAME:-default} or ${file:PATH}; $${ stands for a literal ${"
PERCENT = "percent-encode special characters in the user name and password, for example @ as %40 and / as %2F"
BEGIN = "must start with postgresql://, for example postgresql://user:password@host:5432/database"
HADOOP = "the hadoop catalog is refused because it loses commits of concurrent writers (5 of 298 in our test); "

LIKELY = [
    # ---- keys
    Likely("misspelt key", SCHEMA, "shcema: public", 7, f"{SOURCE}.shcema", "unknown key; ", "did you mean 'schema'?"),
    Likely("unknown key", SCHEMA, "zone: x", 7, f"{SOURCE}.zone", "unknown key; ", f"valid keys: {SOURCE_KEYS}"),
    Likely(
        "key as other tools call it",
        f"url: {ADDRESS}",
        "host: db",
        6,
        f"{SOURCE}.host",
        "unknown key; ",
        "did you mean 'url'?",
    ),
    Likely(
        "key with a capital",
        "type: postgres",
        "Type: postgres",
        5,
        f"{SOURCE}.Type",
        "unknown key; ",
        "did you mean 'type'?",
    ),
    Likely(
        "no source",
        GOOD[GOOD.index("    source") : GOOD.index("    sink")],
        "",
        3,
        SOURCE,
        "required key is missing; ",
        "known types: files, lake, outbox, postgres, rest, stripe, wal",
    ),
    Likely(
        "no sink",
        GOOD[GOOD.index("    sink") : GOOD.index("    slice")],
        "",
        3,
        SINK,
        "required key is missing; ",
        "known types: files, http, lake, postgres",
    ),
    Likely(
        "no type",
        "      type: files\n",
        "",
        8,
        f"{SINK}.type",
        "required key is missing; ",
        "known types: files, http, lake, postgres",
    ),
    Likely(
        "no url",
        f"      url: {ADDRESS}\n",
        "",
        4,
        f"{SOURCE}.url",
        "required key is missing; ",
        'for example url: "${DATABASE_URL}"',
    ),
    Likely(
        "no directory",
        "      directory: out\n",
        "",
        8,
        f"{SINK}.directory",
        "required key is missing; ",
        "for example directory: out",
    ),
    Likely(
        "misspelt type",
        "type: postgres",
        "type: postgresql",
        5,
        f"{SOURCE}.type",
        "unknown source type 'postgresql'; ",
        "did you mean 'postgres'? Known: files, lake, outbox, postgres, rest, stripe, wal",
    ),
    Likely(
        "type as others call it",
        "type: files",
        "type: parquet",
        9,
        f"{SINK}.type",
        "unknown sink type 'parquet'; ",
        "did you mean 'files'? Known: files, http, lake, postgres",
    ),
    Likely(
        "unknown type",
        "type: files",
        "type: kafka",
        9,
        f"{SINK}.type",
        "unknown sink type 'kafka'. ",
        "Known: files, http, lake, postgres",
    ),
    Likely(
        "key written twice",
        SCHEMA,
        f"{SCHEMA}\n      schema: sales",
        8,
        f"{SOURCE}.schema",
        "duplicate key; ",
        "the first is on line 7",
    ),
    Likely(
        "key of another sink's streams",
        "tiebreaker: id\n",
        "tiebreaker: id\n        mode: merge\n",
        16,
        f"{STREAMS}.orders.mode",
        "unknown key; ",
        "it belongs to streams into lake",
    ),
    Likely(
        "stream's key in the source",
        SCHEMA,
        "cursor: updated_at",
        7,
        f"{SOURCE}.cursor",
        "unknown key; ",
        "it belongs to a stream",
    ),
    Likely(
        "sink's key in the source",
        SCHEMA,
        "format: csv",
        7,
        f"{SOURCE}.format",
        "unknown key; ",
        "it belongs to 'sink'",
    ),
    Likely(
        "source's key in a stream",
        "cursor: updated_at\n",
        "cursor: updated_at\n        schema: sales\n",
        15,
        f"{STREAMS}.orders.schema",
        "unknown key; ",
        "it belongs to 'source'",
    ),
    # ---- the shape of the file
    Likely(
        "tab", f"      {SCHEMA}", f"\t{SCHEMA}", 7, f"{SOURCE}.schema", "indented with a tab; ", "YAML requires spaces"
    ),
    Likely(
        "indented too little",
        f"      {SCHEMA}",
        f"     {SCHEMA}",
        7,
        f"{SOURCE}.schema",
        "indented by 5, ",
        "but the line above by 6",
    ),
    Likely(
        "indented too far",
        f"      {SCHEMA}",
        f"        {SCHEMA}",
        7,
        f"{SOURCE}.schema",
        "indented by 8, ",
        "but the line above by 6",
    ),
    Likely("no colon", SCHEMA, "schema public", 7, SOURCE, "':' is missing; ", "write 'key: value'"),
    Likely(
        "no colon after a heading",
        "    source:\n",
        "    source\n",
        4,
        SHOP,
        "':' is missing at the end of the line; ",
        "write 'key:'",
    ),
    Likely(
        "no space after a colon",
        SCHEMA,
        "schema:public",
        7,
        SOURCE,
        "a space is missing after ':'; ",
        "write 'key: value'",
    ),
    Likely(
        "no space after a colon in braces",
        "{cursor: updated_at",
        "{cursor:updated_at",
        16,
        f'{STREAMS}.customers."cursor:…"',
        "unknown key; ",
        "a space is missing after 'cursor:'",
    ),
    Likely(
        "quote that is not closed",
        ADDRESS,
        '"${DATABASE_URL}',
        6,
        f"{SOURCE}.url",
        "the quote at column 12 is never closed",
        "",
    ),
    Likely(
        "brace that is not closed",
        "tiebreaker: id}",
        "tiebreaker: id",
        16,
        f"{STREAMS}.customers",
        "the '{' at column 18 is never closed: ",
        "'}' is missing",
    ),
    Likely("empty file", GOOD, "", 1, "", "the file is empty; ", "it must contain at least 'pipelines:'"),
    Likely(
        "no pipelines",
        GOOD[GOOD.index("pipelines") :],
        "",
        1,
        "pipelines",
        "required key is missing; ",
        "write each pipeline below it, under its name",
    ),
    Likely(
        "no name of a pipeline",
        GOOD[GOOD.index("  shop") :],
        "  source: {type: lake}\n",
        3,
        "pipelines.source",
        "is a key of a pipeline, not a pipeline's name; ",
        "write it below a pipeline's name, indented",
    ),
    Likely(
        "pipeline that is not indented",
        GOOD[GOOD.index("  shop") :],
        "shop: {source: {type: lake}}\n",
        3,
        "shop",
        "unknown key; ",
        "if it is a pipeline, indent it below 'pipelines:'",
    ),
    Likely(
        "no streams below streams",
        GOOD[GOOD.index("      orders") :],
        "",
        12,
        STREAMS,
        "there are no streams; ",
        "omit 'streams' to sync every stream that discovery finds",
    ),
    Likely(
        "two pipelines of one name", GOOD, GOOD + "  shop: {}\n", 17, SHOP, "duplicate key; ", "the first is on line 3"
    ),
    Likely(
        "pipeline's name with a slash",
        "  shop:",
        "  shop/eu:",
        3,
        'pipelines."shop/eu"',
        "a pipeline's name ",
        "must not contain '/'",
    ),
    Likely(
        "list of streams",
        GOOD[GOOD.index("      orders") :],
        "      - orders\n",
        12,
        STREAMS,
        "expected a mapping, not a list; ",
        "write 'orders:' instead of '- orders'",
    ),
    # ---- values
    Likely(
        "yes for true",
        SCHEMA,
        "discover: yes",
        7,
        f"{SOURCE}.discover",
        "expected true or false, not 'yes'; ",
        "did you mean true?",
    ),
    Likely(
        "number for text",
        "directory: out",
        "directory: 2024",
        10,
        f"{SINK}.directory",
        "expected a string, not 2024; ",
        'put it in quotes: "2024"',
    ),
    Likely(
        "text for a number",
        SCHEMA,
        "connect_timeout: 10s",
        7,
        f"{SOURCE}.connect_timeout",
        "expected a whole number, not '10s'",
        "",
    ),
    Likely(
        "number in quotes",
        SCHEMA,
        'connect_timeout: "10"',
        7,
        f"{SOURCE}.connect_timeout",
        "expected a whole number, not '10'; ",
        "write it without quotes",
    ),
    Likely(
        "text for a list",
        SCHEMA,
        "exclude: audit_log",
        7,
        f"{SOURCE}.exclude",
        "expected a list, not 'audit_log'; ",
        'write a list: ["audit_log"]',
    ),
    Likely(
        "mapping for a list",
        SCHEMA,
        "exclude: {audit_log: }",
        7,
        f"{SOURCE}.exclude",
        "expected a list, not a mapping; ",
        "write a list: [a, b]",
    ),
    Likely(
        "text for a list of partitions",
        "tiebreaker: id\n",
        "partition_by: day\n",
        15,
        f"{STREAMS}.orders.partition_by",
        "expected a list, not 'day'; ",
        'write a list: ["day"]',
    ),
    Likely(
        "wrong unit", "64MiB", "64 megabytes", 11, f"{SHOP}.slice_bytes", "expected ", SIZE.removeprefix("expected ")
    ),
    Likely("negative size", "64MiB", "-1", 11, f"{SHOP}.slice_bytes", "expected greater than 0, ", "not -1"),
    Likely(
        "wrong choice",
        "directory: out",
        "directory: out\n      format: json",
        11,
        f"{SINK}.format",
        "expected 'parquet', 'csv' or 'ndjson', not 'json'; ",
        "did you mean 'ndjson'?",
    ),
    Likely(
        "star without quotes",
        SCHEMA,
        "exclude: [*_tmp]",
        7,
        f"{SOURCE}.exclude",
        "alias *_tmp has no anchor &_tmp before it; ",
        "put a string that starts with * in quotes",
    ),
    Likely(
        "colon in a value",
        SCHEMA,
        "schema: a: b",
        7,
        f"{SOURCE}.schema",
        "': ' at column 16 is inside a value; ",
        "put the value in quotes",
    ),
    Likely(
        "hash in a value",
        ADDRESS,
        "postgresql://ann:hunter2 #x@db/shop",
        6,
        f"{SOURCE}.url",
        f"cannot be split into user, password, host and port; {PERCENT}; ",
        "' #' starts a comment: quote the value if it is part of it",
    ),
    Likely(
        "value that begins with @",
        SCHEMA,
        "schema: @sales",
        7,
        f"{SOURCE}.schema",
        "a value cannot start with '@'; ",
        "put the value in quotes",
    ),
    Likely(
        "backslash in double quotes",
        "directory: out",
        'directory: "C:\\out"',
        10,
        f"{SINK}.directory",
        "invalid backslash escape in double quotes; ",
        "use single quotes",
    ),
    Likely(
        "nothing for a value", ADDRESS, "", 6, f"{SOURCE}.url", "expected a string, not nothing; ", "give it a value"
    ),
    # ---- variables and addresses
    Likely(
        "misspelt variable",
        "DATABASE_URL",
        "DATABSE_URL",
        6,
        f"{SOURCE}.url",
        "environment variable DATABSE_URL is not set; ",
        "did you mean ${DATABASE_URL}?",
    ),
    Likely(
        "variable that is not set, inside an address",
        ADDRESS,
        "postgresql://ann:${PGPASSWORD}@db/shop",
        6,
        f"{SOURCE}.url",
        "environment variable PGPASSWORD is not set; ",
        "set it, or write ${PGPASSWORD:-default}",
    ),
    Likely(
        "variable that is not closed",
        ADDRESS,
        '"${DATABASE_URL"',
        6,
        f"{SOURCE}.url",
        "'${' has no closing '}'; ",
        VARIABLE,
    ),
    Likely(
        "variable as a shell writes it",
        ADDRESS,
        "$DATABASE_URL",
        6,
        f"{SOURCE}.url",
        f"{BEGIN}; ",
        "write variables as ${NAME}",
    ),
    Likely(
        "variable between braces without quotes",
        "{cursor: updated_at",
        "{cursor: ${CURSOR}",
        16,
        f"{STREAMS}.customers",
        "quote a variable between brackets: ",
        '"${NAME}"',
    ),
    Likely(
        "file of a secret that is missing",
        ADDRESS,
        '"${file:/none/url}"',
        6,
        f"{SOURCE}.url",
        "file /none/url does not exist; ",
        "put a value into the file, or write ${file:/none/url:-default}",
    ),
    Likely(
        "password with @",
        ADDRESS,
        "postgresql://ann:hunter@2@db/shop",
        6,
        f"{SOURCE}.url",
        "cannot be split into user, password, host and port; ",
        PERCENT,
    ),
    Likely("address of something else", ADDRESS, "jdbc:postgresql://db/shop", 6, f"{SOURCE}.url", BEGIN, ""),
    # ---- keys that do not go together
    Likely(
        "column named twice",
        "tiebreaker: id\n",
        "tiebreaker: [id, id]\n",
        15,
        f"{STREAMS}.orders.tiebreaker",
        "names id twice",
        "",
    ),
    Likely(
        "hadoop catalog",
        "type: files\n      directory: out",
        "type: lake\n      catalog: {type: hadoop}",
        10,
        f"{SINK}.catalog.type",
        HADOOP,
        "use sqlite on one machine, or jdbc, rest, glue or hive",
    ),
]


def mistakes(text: str, folder: Path) -> list[str]:
    path = folder / "shop.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        config.load(path, environment={"DATABASE_URL": URL}, sources=sources, sinks=sinks)
    assert "hunter" not in str(caught.value)
    lines = caught.value.what.splitlines()
    return [line.removeprefix(f"{path}:") for line in (lines if len(lines) == 1 else lines[1:])]


def test_the_file_without_a_mistake_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(GOOD)
    file = config.load(path, environment={"DATABASE_URL": URL}, sources=sources, sinks=sinks)
    assert list(file.pipelines) == ["shop"]


def test_there_are_at_least_thirty() -> None:
    assert len({likely.name for likely in LIKELY}) == len(LIKELY) >= 30


@pytest.mark.parametrize("likely", LIKELY, ids=lambda likely: likely.name)
def test_a_mistake_is_told_with_its_line_key_and_what_to_write_instead(likely: Likely, tmp_path: Path) -> None:
    assert mistakes(likely.text, tmp_path) == [likely.message]


def test_several_in_one_file_are_told_at_once(tmp_path: Path) -> None:
    """All that change one line and leave the file readable."""
    together = [
        likely
        for likely in LIKELY
        if likely.name
        in (
            "key as other tools call it",
            "wrong unit",
            "misspelt key",
            "number for text",
            "no space after a colon in braces",
            "column named twice",
        )
    ]
    text = GOOD
    for likely in together:
        text = text.replace(likely.right, likely.wrong, 1)
    wanted = sorted(together, key=lambda likely: likely.line)
    assert mistakes(text, tmp_path) == [likely.message for likely in wanted]
