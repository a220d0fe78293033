"""Each mistake, with its exact message."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.config.fakes import SINKS, SOURCES, Fake, PostgresOptions, PostgresStream, load

from penstock import config
from penstock.errors import ConfigError, StreamRefused

#: line 1 is `pipelines:`, line 3 the source, line 4 the sink, line 5 whatever the test is about
FILE = """pipelines:
  shop:
    source: {source}
    sink: {sink}
    {more}
"""
SOURCE = '{type: postgres, url: "${DATABASE_URL}"}'
SINK = "{type: files, directory: out}"
SAFE = "Nothing was read or written."
NEXT = "correct the file, then run the same command again"


def file(more: str = "", *, source: str = SOURCE, sink: str = SINK) -> str:
    return FILE.replace("{source}", source).replace("{sink}", sink).replace("{more}", more)


def mistakes(text: str | bytes, folder: Path, **environment: str) -> list[str]:
    """The mistakes of a file, each without the file's path."""
    with pytest.raises(ConfigError) as caught:
        load(text, folder, **environment)
    assert (caught.value.safe, caught.value.next_step) == (SAFE, NEXT)
    path = str(folder / "shop.yaml")
    lines = caught.value.what.splitlines()
    if len(lines) > 1:
        assert lines.pop(0) == f"{len(lines)} mistakes in {path}"
    assert all(line.startswith(f"{path}:") for line in lines)
    return [line.removeprefix(f"{path}:") for line in lines]


def mistake(text: str | bytes, folder: Path, **environment: str) -> str:
    (only,) = mistakes(text, folder, **environment)
    return only


KEYS = [
    (
        file(source='{type: postgres, url: "${DATABASE_URL}", shcema: public}'),
        "3: pipelines.shop.source.shcema: unknown key; did you mean 'schema'?",
    ),
    (
        file(source='{type: postgres, url: "${DATABASE_URL}", zzz: public}'),
        "3: pipelines.shop.source.zzz: unknown key; valid keys: exclude, schema, timeout, type, url, verify",
    ),
    (
        file(source='{type: postgres, ulr: "${DATABASE_URL}"}'),
        "3: pipelines.shop.source.ulr: unknown key; did you mean 'url'?",
    ),
    (file(source="{type: postgres}"), "3: pipelines.shop.source.url: required key is missing"),
    ("stroe: x\n" + file(), "1: stroe: unknown key; did you mean 'store'?"),
    (file("slice_byte: 5"), "5: pipelines.shop.slice_byte: unknown key; did you mean 'slice_bytes'?"),
    (
        file("streams: {orders: {cusor: id}}"),
        "5: pipelines.shop.streams.orders.cusor: unknown key; did you mean 'cursor'?",
    ),
    (
        file("streams: {orders: {zzz: id}}"),
        "5: pipelines.shop.streams.orders.zzz: unknown key; "
        "valid keys: cursor, drift, dropped, lag, partition_by, shape, tiebreaker, unique",
    ),
    (
        file("streams: {orders: {partition_by: {colum: day, by: date}}}"),
        "5: pipelines.shop.streams.orders.partition_by.colum: unknown key; did you mean 'column'?",
    ),
    (
        file("streams: {orders: {partition_by: {by: date}}}"),
        "5: pipelines.shop.streams.orders.partition_by.column: required key is missing",
    ),
    ("spark: {mastr: x}\n" + file(), "1: spark.mastr: unknown key; did you mean 'master'?"),
    ("store: x\n", "1: pipelines: required key is missing; write each pipeline below it, under its name"),
    (
        "pipelines:\n  shop:\n    source: " + SOURCE,
        "2: pipelines.shop.sink: required key is missing; known types: files",
    ),
    (
        file("lease_seconds: 5\n    lease_seconds: 6"),
        "6: pipelines.shop.lease_seconds: duplicate key; the first is on line 5",
    ),
    (
        file('streams: {"public.orders": {x: 1, cursor: c}}'),
        '5: pipelines.shop.streams."public.orders".x: unknown key; '
        "valid keys: cursor, drift, dropped, lag, partition_by, shape, tiebreaker, unique",
    ),
]
TYPES = [
    (
        file(source="{type: postgre, url: x}"),
        "3: pipelines.shop.source.type: unknown source type 'postgre'; did you mean 'postgres'? Known: postgres, rest",
    ),
    (file(sink="{type: kafka}"), "4: pipelines.shop.sink.type: unknown sink type 'kafka'. Known: files"),
    (file(sink="{directory: x}"), "4: pipelines.shop.sink.type: required key is missing; known types: files"),
    (file(sink="{type: 5}"), '4: pipelines.shop.sink.type: expected a string, not 5; put it in quotes: "5"'),
    (
        file(sink='{type: "${DATABASE_URL}"}'),
        "4: pipelines.shop.sink.type: unknown sink type the value of ${DATABASE_URL}. Known: files",
    ),
]
VALUES = [
    ("pipelines: 5\n", "1: pipelines: expected a mapping, not 5; write it as 'key: value'"),
    ("pipelines: [a]\n", "1: pipelines: expected a mapping, not a list; write 'a:' instead of '- a'"),
    ("pipelines: {}\n", "1: pipelines: there are no pipelines"),
    ("pipelines:\n", "1: pipelines: expected a mapping, not nothing; write its keys below it, indented"),
    (
        "pipelines: {shop: }\n",
        "1: pipelines.shop: expected a mapping, not nothing; write its keys below it, indented",
    ),
    ("hello\n", "1: expected a mapping, not 'hello'; write it as 'key: value'"),
    ("- a\n", "1: expected a mapping, not a list; write it as 'key: value'"),
    ("store: 5\n" + file(), '1: store: expected a string, not 5; put it in quotes: "5"'),
    ("store: ''\n" + file(), "1: store: must not be empty"),
    ("store: mysql://h/d\n" + file(), "1: store: expected a path, sqlite:///PATH or postgresql://…"),
    (
        "spark: {memory: lots}\n" + file(),
        "1: spark.memory: expected a size in Java's notation, such as 512m or 2g",
    ),
    ("spark: {config: {a: [1]}}\n" + file(), "1: spark.config.a: expected a string, not a list"),
    (
        file("slice_bytes: 5 bananas"),
        "5: pipelines.shop.slice_bytes: expected a size such as 256MiB, 1.5GB or a number of bytes",
    ),
    (file("slice_bytes: 0"), "5: pipelines.shop.slice_bytes: expected greater than 0, not 0"),
    (file("slice_bytes: 1.5"), "5: pipelines.shop.slice_bytes: expected a whole number, not 1.5"),
    (file("lease_seconds: soon"), "5: pipelines.shop.lease_seconds: expected a number, not 'soon'"),
    (
        file("lease_seconds: '30'"),
        "5: pipelines.shop.lease_seconds: expected a number, not '30'; write it without quotes",
    ),
    (file("lease_seconds: true"), "5: pipelines.shop.lease_seconds: expected a number, not true"),
    (
        file(sink="{type: files, directory: 5}"),
        '4: pipelines.shop.sink.directory: expected a string, not 5; put it in quotes: "5"',
    ),
    (
        file(sink="{type: files, directory: x, format: parqet}"),
        "4: pipelines.shop.sink.format: expected 'parquet', 'csv' or 'ndjson', not 'parqet'; did you mean 'parquet'?",
    ),
    (
        file(source='{type: postgres, url: "${DATABASE_URL}", verify: yes}'),
        "3: pipelines.shop.source.verify: expected true or false, not 'yes'; did you mean true?",
    ),
    (
        file(source='{type: postgres, url: "${DATABASE_URL}", timeout: 0}'),
        "3: pipelines.shop.source.timeout: expected at least 1, not 0",
    ),
    (
        file(source='{type: postgres, url: "${DATABASE_URL}", exclude: [a, 5]}'),
        '3: pipelines.shop.source.exclude[1]: expected a string, not 5; put it in quotes: "5"',
    ),
    (
        file("streams: {}"),
        "5: pipelines.shop.streams: there are no streams; omit 'streams' to sync every stream that discovery finds",
    ),
    (
        file("streams: [orders]"),
        "5: pipelines.shop.streams: expected a mapping, not a list; write 'orders:' instead of '- orders'",
    ),
    (
        file("streams: {orders: id}"),
        "5: pipelines.shop.streams.orders: expected a mapping, not 'id'; write it as 'key: value'",
    ),
    (
        file("streams: {orders: {partition_by: 5}}"),
        "5: pipelines.shop.streams.orders.partition_by: expected a mapping or 'none', not 5; its keys: column, by",
    ),
]
NAMES = [
    ("''", '""', "must not be empty"),
    ("' '", '" "', "must not be empty"),
    ("a/b", '"a/b"', "must not contain '/'"),
    ("..", '".."', "must not be '..'"),
    (".", '"."', "must not be '.'"),
    (r'"a\nb"', r'"a\nb"', "must not contain control characters"),
]
SYNTAX: list[tuple[str | bytes, str]] = [
    ("", "1: the file is empty; it must contain at least 'pipelines:'"),
    ("# only a comment\n", "1: the file is empty; it must contain at least 'pipelines:'"),
    (
        "pipelines:\n  shop: {source: ${X}}\n",
        '2: pipelines.shop: quote a variable between brackets: "${NAME}"',
    ),
    ("a: b: c\n", "1: a: ': ' at column 5 is inside a value; put the value in quotes"),
    ("1" * 5000 + ": x\n", "1: " + "1" * 59 + "…: a key of more than 1000 characters"),
    (": : x\n", "1: not valid YAML at column 1: while parsing a block mapping, did not find expected key"),
    ("a: 1\n---\nb: 2\n", "2: a second document ('---'); a pipeline file must have only one"),
    ("a: *b\n", "1: a: alias *b has no anchor &b before it; put a string that starts with * in quotes"),
    ("a: &b [*b]\n", "1: a: alias *b has no anchor &b before it; put a string that starts with * in quotes"),
    ("a: 1\nb: \x00\n", "2: not valid YAML: control characters are not allowed"),
    (b"a: 1\nb: \xff\n", "2: not UTF-8 text"),
    ("[" * 200_000, "1: nested more than 20 levels deep"),
    ("[" * 300_000 + "]" * 300_000, "1: nested more than 20 levels deep"),
    (
        "pipelines: !!python/object:os.system x\n",
        "1: pipelines: tag !!python/object:os.system is not supported; remove it",
    ),
    ("pipelines: !secret x\n", "1: pipelines: tag !secret is not supported; remove it"),
    ("pipelines: {<<: 5}\n", "1: pipelines: '<<' can merge only mappings"),
    (
        "? [a]\n: b\npipelines: 5\n",
        "1: a key must be a string, not a list or a mapping; quote a value that starts with a bracket",
    ),
]


@pytest.mark.parametrize(("text", "message"), [*KEYS, *TYPES, *VALUES])
def test_one_mistake(tmp_path: Path, text: str, message: str) -> None:
    assert mistake(text, tmp_path) == message


@pytest.mark.parametrize(("name", "shown", "problem"), NAMES)
def test_names(tmp_path: Path, name: str, shown: str, problem: str) -> None:
    stream = file(f"streams: {{{name}: {{}}}}")
    assert mistake(stream, tmp_path) == f"5: pipelines.shop.streams.{shown}: a stream's name {problem}"
    pipeline = f"pipelines: {{{name}: {{source: {SOURCE}, sink: {SINK}}}}}"
    assert mistake(pipeline, tmp_path) == f"1: pipelines.{shown}: a pipeline's name {problem}"


@pytest.mark.parametrize(("text", "message"), SYNTAX)
def test_syntax(tmp_path: Path, text: str | bytes, message: str) -> None:
    assert mistakes(text, tmp_path)[0] == message


def test_aliases_of_aliases_end(tmp_path: Path) -> None:
    rows = ["a0: &a0 [1, 2, 3]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    assert any("the file has more than 20000 values" in line for line in mistakes("\n".join(rows), tmp_path))
    merged = ["a0: &a0 {k: 1}"] + [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 12)]
    assert mistakes("\n".join(merged), tmp_path)


def test_all_mistakes_at_once_in_the_order_of_their_lines(tmp_path: Path) -> None:
    text = """\
stroe: x
pipelines:
  shop:
    source: {type: postgres, url: "${NOT_SET}", shcema: x}
    sink: {type: file}
    lease_seconds: soon
    streams: {a/b: {}}
  other:
    source: {type: postgres, url: "${DATABASE_URL}", timeout: x}
    sink: {type: files, directory: 5}
    streams: {orders: {unique: 1, cursor: 2}}
"""
    assert mistakes(text, tmp_path) == [
        "1: stroe: unknown key; did you mean 'store'?",
        "4: pipelines.shop.source.shcema: unknown key; did you mean 'schema'?",
        "4: pipelines.shop.source.url: environment variable NOT_SET is not set; set it, or write ${NOT_SET:-default}",
        "5: pipelines.shop.sink.type: unknown sink type 'file'; did you mean 'files'? Known: files",
        "6: pipelines.shop.lease_seconds: expected a number, not 'soon'",
        "7: pipelines.shop.streams.\"a/b\": a stream's name must not contain '/'",
        "9: pipelines.other.source.timeout: expected a whole number, not 'x'",
        '10: pipelines.other.sink.directory: expected a string, not 5; put it in quotes: "5"',
        '11: pipelines.other.streams.orders.cursor: expected a string, not 2; put it in quotes: "2"',
        "11: pipelines.other.streams.orders.unique: expected true or false, not 1",
    ]


def test_a_missing_variable_is_one_mistake_although_its_field_is_required(tmp_path: Path) -> None:
    text = file(source='{type: postgres, url: "${NOT_SET}", exclude: [public]}')
    assert mistake(text, tmp_path) == (
        "3: pipelines.shop.source.url: environment variable NOT_SET is not set; set it, or write ${NOT_SET:-default}"
    )


HOW = "write ${NAME}, ${NAME:-default} or ${file:PATH}; $${ stands for a literal ${"


@pytest.mark.parametrize("written", ["${}", "${1}", "${A B}", "${A-b}", "${file:}", "${FILE:x}"])
def test_a_variable_that_is_none(tmp_path: Path, written: str) -> None:
    text = file(sink=f'{{type: files, directory: "{written}"}}')
    assert mistake(text, tmp_path) == f"4: pipelines.shop.sink.directory: '${{' does not start a valid variable; {HOW}"


@pytest.mark.parametrize("written", ["${", "${A", "a${A:-b", "${file:x"])
def test_a_variable_that_is_not_closed(tmp_path: Path, written: str) -> None:
    text = file(sink=f'{{type: files, directory: "{written}"}}')
    assert mistake(text, tmp_path) == f"4: pipelines.shop.sink.directory: '${{' has no closing '}}'; {HOW}"


def test_what_a_variable_holds_is_never_shown(tmp_path: Path) -> None:
    secret = "mysql://ann:hunter2@db/x"
    everywhere = "store: '${S}'\nspark: {memory: '${S}', config: {a: '${S}'}}\n" + file(
        "slice_bytes: '${S}'\n    lease_seconds: '${S}'\n    streams: {a: {unique: '${S}', partition_by: '${S}'}}",
        source="{type: postgres, url: 'x${S}', timeout: '${S}', verify: '${S}', exclude: '${S}'}",
        sink="{type: files, directory: [a], format: '${S}'}",
    )
    found = mistakes(everywhere, tmp_path, S=secret)
    assert len(found) == 12
    shown = "\n".join(found)
    for piece in (secret, "hunter2", "ann", "mysql"):
        assert piece not in shown
    assert "5: pipelines.shop.source.timeout: expected a whole number, not the value of ${S}" in found
    assert "5: pipelines.shop.source.url: *** does not begin with postgresql://" in found


def test_secrets_in_the_file_are_not_shown_either(tmp_path: Path) -> None:
    text = file(source="{type: postgres, url: 'mysql://ann:hunter2@db/x'}")
    assert mistake(text, tmp_path) == "3: pipelines.shop.source.url: *** does not begin with postgresql://"
    number = file(source="{type: postgres, url: 4711}")
    assert mistake(number, tmp_path) == "3: pipelines.shop.source.url: expected a string, not a number"


def test_a_validator_over_several_fields_does_not_show_them(tmp_path: Path) -> None:
    text = file(source='{type: postgres, url: "${DATABASE_URL}", exclude: [public]}')
    assert mistake(text, tmp_path) == "3: pipelines.shop.source: the schema public is excluded; url is ***"


def together(stream: str, options: PostgresStream) -> None:
    if options.tiebreaker and not options.cursor:
        raise StreamRefused(
            f"`tiebreaker` ({options.tiebreaker[0]}) is set, but no `cursor`", next_step="add it", stream=stream
        )


def test_what_a_source_says_of_a_stream_s_options_together(tmp_path: Path) -> None:
    """A source or sink may offer `check_options`; a stream with other mistakes is not asked about."""
    module = SimpleNamespace(Options=PostgresOptions, StreamOptions=PostgresStream, check_options=together)
    streams = "{a: {tiebreaker: '${T}'}, b: {tiebreaker: id, cursor: n}, c: {tiebreaker: id, zzz: 1}}"
    path = tmp_path / "shop.yaml"
    path.write_text(file(f"streams: {streams}", source="{type: postgres, url: 'postgresql://h/d'}"))
    with pytest.raises(ConfigError) as caught:
        config.load(path, environment={"T": "hidden"}, sources=Fake({"postgres": module}), sinks=SINKS)
    assert caught.value.what.splitlines()[1:] == [
        f"{path}:5: pipelines.shop.streams.a: `tiebreaker` (***) is set, but no `cursor`; add it",
        f"{path}:5: pipelines.shop.streams.c.zzz: unknown key; "
        "valid keys: cursor, drift, dropped, lag, partition_by, shape, tiebreaker, unique",
    ]


def test_text_that_is_not_unicode(tmp_path: Path) -> None:
    text = file(sink="{type: files, directory: '${D}'}")
    assert mistake(text, tmp_path, D="\udcff") == "4: pipelines.shop.sink.directory: not valid Unicode"


def unreadable(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        config.load(path, environment={}, sources=SOURCES, sinks=SINKS)
    assert caught.value.next_step == "pass the path of a pipeline file (YAML)"
    assert caught.value.safe == SAFE
    return caught.value.what


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert unreadable(tmp_path / "none.yaml") == f"{tmp_path}/none.yaml: no such file"
    (tmp_path / "shop.yaml").touch()
    assert unreadable(tmp_path / "shop.yml") == (
        f"{tmp_path}/shop.yml: no such file; did you mean '{tmp_path}/shop.yaml'?"
    )
    assert unreadable(tmp_path / "none" / "x.yaml") == f"{tmp_path}/none/x.yaml: no such file"
    assert unreadable(tmp_path) == f"{tmp_path}: is a directory, not a pipeline file"
    assert unreadable(tmp_path / "shop.yaml" / "x") == f"{tmp_path}/shop.yaml/x: cannot be read: Not a directory"
    large = tmp_path / "large"
    large.write_bytes(b"#" * (1024 * 1024 + 1))
    assert unreadable(large) == f"{large}: is larger than 1 MiB, too large for a pipeline file"
