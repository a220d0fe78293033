"""The keys that any stream has, whatever its source and sink: `drift` and `shape`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.config.fakes import FilesStream, PostgresStream, load
from tests.config.test_load import small
from tests.config.test_schema import REAL, SHOP

from penstock import sinks, sources
from penstock.config import StreamKeys
from penstock.config.load import names_of
from penstock.errors import ConfigError
from penstock.shaping.options import Shape

SECRET = "correct horse battery"


def shape(text: str, folder: Path) -> Shape:
    found = load(small(f"streams: {{a: {{shape: {{{text}}}}}}}"), folder, SALT=SECRET).pipelines["shop"].streams["a"]
    assert found.shape is not None
    return found.shape


def mistake(text: str, folder: Path, *, streams: str = "{{a: {{shape: {{{}}}}}}}") -> str:
    """The only mistake, without the way to the shape."""
    with pytest.raises(ConfigError) as caught:
        load(small(f"streams: {streams.format(text)}"), folder, SALT=SECRET, SHORT="too short")
    assert SECRET not in str(caught.value)
    line = str(caught.value).splitlines()[0]
    return line.partition("pipelines.shop.streams.a")[2].removeprefix(".")


def test_a_stream_s_keys_are_split_three_ways(tmp_path: Path) -> None:
    shop = load(small("streams: {a: {drift: freeze, cursor: n, partition_by: none}, b: }"), tmp_path).pipelines["shop"]
    assert shop.streams == {"a": StreamKeys(drift="freeze"), "b": StreamKeys()}
    assert shop.source_streams == {"a": PostgresStream(cursor="n"), "b": PostgresStream()}
    assert shop.sink_streams == {"a": FilesStream(partition_by="none"), "b": FilesStream()}
    assert StreamKeys().drift == "evolve"
    assert StreamKeys().shape is None


@pytest.mark.parametrize("registry", [sources, sinks], ids=["sources", "sinks"])
def test_no_source_or_sink_has_a_key_of_the_same_name(registry: Any) -> None:
    for type_ in registry.types():
        assert not names_of(StreamKeys) & names_of(registry.load(type_).StreamOptions), type_


def test_everything_a_shape_can_say(tmp_path: Path) -> None:
    said = shape(
        "where: total > 1, select: [id, mail, phone, total], cast: {total: 'decimal( 12, 2 )'}, on_error: null, "
        "hash: [mail], salt: '${SALT}', mask: {phone: null}, rename: {id: customer_id}",
        tmp_path,
    )
    assert said.salt is not None
    assert said.salt.get_secret_value() == SECRET
    assert said.model_dump(exclude={"salt"}) == {
        "where": "total > 1",
        "select": ("id", "mail", "phone", "total"),
        "drop": (),
        "cast": {"total": "decimal(12,2)"},
        "on_error": "null",
        "hash": {"mail": "hmac-sha256"},
        "mask": {"phone": "null"},
        "rename": {"id": "customer_id"},
    }
    assert SECRET not in repr(said)
    assert shape("hash: {mail: sha256}, drop: [id]", tmp_path).hash == {"mail": "sha256"}


@pytest.mark.parametrize("written", ["null", "Null", "'null'", '"null"'])
def test_a_choice_that_is_called_null_may_be_written_so(written: str, tmp_path: Path) -> None:
    """YAML takes the word for nothing; nothing at all is still a mistake."""
    assert shape(f"mask: {{a: {written}}}, on_error: {written}", tmp_path).mask == {"a": "null"}
    assert mistake("on_error: ", tmp_path) == "shape.on_error: expected 'fail' or 'null', not nothing; give it a value"
    assert mistake("on_error: ~", tmp_path).startswith("shape.on_error: expected 'fail' or 'null'")


def test_a_choice_that_is_called_null_may_be_written_so_in_an_override(tmp_path: Path) -> None:
    text = small("streams: {a: {shape: {drop: [b]}}}")
    found = load(text, tmp_path, sets=["streams.a.shape.on_error=null"]).pipelines["shop"].streams["a"].shape
    assert found is not None
    assert found.on_error == "null"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("selct: [a]", "shape.selct: unknown key; did you mean 'select'?"),
        ("select: []", "shape.select: must not be empty"),
        ("select: [a, a]", "shape.select: names a twice"),
        ("select: a", "shape.select: expected a list, not 'a'; write a list: [\"a\"]"),
        ("select: [a], drop: [a]", "shape: a is in both `select` and `drop`: remove it from one of them"),
        ("cast: {a: varchar}", "shape.cast.a: there is no type 'varchar'; did you mean text?"),
        ("cast: {a: int65}", "shape.cast.a: there is no type 'int65'; did you mean int64?"),
        (
            "cast: {a: 'numeric(12,2)'}",
            "shape.cast.a: there is no type 'numeric(12,2)'; did you mean decimal(p,s), such as decimal(12,2)?",
        ),
        (
            "cast: {a: geometry}",
            "shape.cast.a: there is no type 'geometry'; there are bool, int16, int32, int64, float, double, text, "
            "binary, date, timestamp, timestamptz, decimal(p,s)",
        ),
        (
            "cast: {a: 'decimal(39,2)'}",
            "shape.cast.a: decimal(39,2) is invalid: a decimal has 1 to 38 digits in total",
        ),
        ("hash: [a, a], salt: '${SALT}'", "shape.hash: names a twice"),
        (
            "hash: [a]",
            "shape: `hash` of a requires a secret, for example salt: ${SALT}; without one, short values can be "
            "guessed (to accept "
            "that: hash: {a: sha256})",
        ),
        ("hash: [a], salt: '${SHORT}'", "shape.salt: must have at least 16 characters"),
        ("hash: {a: sha256}, salt: '${SALT}'", "shape: `salt` is set, but no column is hashed with it"),
        ("hash: {a: md5}", "shape.hash.a: expected 'hmac-sha256' or 'sha256', not 'md5'"),
        (
            "hash: {a: sha256}, mask: {a: redact}",
            "shape: a is in both `hash` and `mask`: remove it from one of them",
        ),
        (
            "mask: {a: last5}",
            "shape.mask.a: expected 'null', 'redact', 'last4' or 'email', not 'last5'; did you mean 'last4'?",
        ),
        ("rename: {a: c, b: c}", "shape.rename: gives two columns the name c"),
        ("rename: {a: _change}", "shape.rename: a cannot be renamed to _change: penstock uses that name itself"),
        ("rename: {a: ' '}", "shape.rename: a needs a new name"),
        ("select: [a], cast: {b: text}", "shape: `cast` names b, which is not delivered: see `select` and `drop`"),
        ("drop: [b], rename: {b: c}", "shape: `rename` names b, which is not delivered: see `select` and `drop`"),
        ("where: ''", "shape.where: must not be empty"),
    ],
)
def test_mistakes_in_a_shape(text: str, told: str, tmp_path: Path) -> None:
    assert mistake(text, tmp_path) == told


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("drift: freeze", "drift: unknown key; it belongs to a stream"),
        ("streams: {a: {rename: {b: c}}}", "streams.a.rename: unknown key; it belongs to 'shape', indented below it"),
        ("streams: {a: {drift: freez}}", "not 'freez'; did you mean 'freeze'?"),
        ("streams: {a: {shap: {drop: [b]}}}", "streams.a.shap: unknown key; did you mean 'shape'?"),
    ],
)
def test_a_key_that_stands_in_the_wrong_place(more: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(small(more), tmp_path)
    assert str(caught.value).splitlines()[0].endswith(told)


@pytest.mark.parametrize("sink", ["lake", "files, directory: out"])
@pytest.mark.parametrize(
    ("stream", "wrong"),
    [
        ("drift: quarantine, shape: {hash: [a], salt: '${SALT}', mask: {b: null}, on_error: null}", 0),
        ("unfit: null, horizon: {lag: 60}, shape: {hash: {a: sha256}, cast: {b: 'decimal(1,0)'}}", 0),
        ("drift: frozen", 1),
        ("shape: {selct: [a]}", 1),
        ("shape: {mask: {a: last5}}", 1),
    ],
)
def test_an_editor_knows_them(sink: str, stream: str, wrong: int) -> None:
    assert len(list(REAL.iter_errors(yaml.safe_load(SHOP % (sink, stream))))) == wrong
