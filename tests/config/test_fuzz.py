"""Whatever is done to a file, to an override or to the file of a secret: it is loaded, or refused with its mistakes."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.config.fakes import URL, load
from tests.config.test_load import FULL

from penstock import config, sinks, sources
from penstock.config import File
from penstock.errors import ConfigError

SECRET = "s3cr3t-v4lue"
_TEMPORARY = tempfile.TemporaryDirectory(prefix="penstock-fuzz-")
FOLDER = Path(_TEMPORARY.name)
TOP = Path(__file__).parents[2]
EXAMPLES = [path.read_text() for path in sorted((TOP / "examples").glob("*.yaml"))]
LINES = FULL.strip().splitlines()
#: pieces that mean something to YAML, to variables or to the models
SCRAPS = (
    st.sampled_from(list("{}[]:,-?*&!|>'\"%@`#~$\n\t\x00\ufeff\u2028é"))
    | st.sampled_from(["${", "${X}", "${DATABASE_URL}", "$${", "<<: ", "&a ", "*a", "!!int ", "!!set ", "---", "..."])
    | st.sampled_from(["null", "true", "1e999", "-0", ".inf", "1" * 5000, "{" * 30, "'" * 3, "\n  ", "\n      "])
    | st.sampled_from(["type", "source", "sink", "streams", "postgres", "files", "slice_bytes", "url", "by"])
    | st.sampled_from(["${file:secret}", "${file:none}", "${file:", "${file:.}", "${file:\x00}", "pipelines", "shop"])
    | st.text(max_size=8)
)


@st.composite
def mutated(draw: st.DrawFn, text: str = FULL) -> str:
    """A valid file, its tokens dropped, doubled, swapped or replaced."""
    tokens = re.findall(r"\w+|\s+|[^\w\s]", text)
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(tokens) - 1))
        match draw(st.sampled_from(["drop", "double", "swap", "replace", "insert"])):
            case "drop":
                del tokens[at]
            case "double":
                tokens.insert(at, tokens[at])
            case "swap":
                other = draw(st.integers(0, len(tokens) - 1))
                tokens[at], tokens[other] = tokens[other], tokens[at]
            case "replace":
                tokens[at] = draw(SCRAPS)
            case _:
                tokens.insert(at, draw(SCRAPS))
    return "".join(tokens)


@st.composite
def reordered(draw: st.DrawFn) -> str:
    """The valid file's lines in any order and indentation."""
    lines = draw(st.lists(st.sampled_from(LINES), max_size=len(LINES)))
    return "\n".join(" " * draw(st.integers(0, 6)) + line.strip() for line in lines)


def loaded_or_refused(load_it: Callable[[], object]) -> None:
    try:
        assert isinstance(load_it(), File)
    except ConfigError as error:
        refused_well(error)


def refused_well(error: ConfigError) -> None:
    path = f"{FOLDER}/shop.yaml:"
    lines = error.what.splitlines()
    told = [line for line in lines if line.startswith((path, "--set "))]
    assert len(told) == max(1, len(lines) - 1), error.what
    assert all(re.match(r"\d+: .", line.removeprefix(path)) for line in told if not line.startswith("--set "))
    assert not any(secret in str(error) for secret in (SECRET, "hunter2"))
    assert all(character.isprintable() or character == "\n" for character in str(error))


def with_real_types(text: str, sets: Sequence[str] = ()) -> File:
    """As the command loads it."""
    path = FOLDER / "shop.yaml"
    path.write_bytes(text.encode(errors="surrogatepass"))
    variables = {"DATABASE_URL": URL, "X": SECRET}
    return config.load(path, environment=variables, sources=sources, sinks=sinks, sets=sets)


FUZZ = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@FUZZ
@given(mutated() | reordered())
def test_a_changed_file(text: str) -> None:
    (FOLDER / "secret").write_text(SECRET)
    loaded_or_refused(lambda: load(text.encode(errors="surrogatepass"), FOLDER, X=SECRET))


@FUZZ
@given(st.binary(max_size=200))
def test_any_bytes(raw: bytes) -> None:
    loaded_or_refused(lambda: load(raw, FOLDER, X=SECRET))


@FUZZ
@given(st.sampled_from(EXAMPLES).flatmap(mutated))
def test_a_changed_example_with_the_real_sources_and_sinks(text: str) -> None:
    (FOLDER / "secret").write_text(SECRET)
    loaded_or_refused(lambda: with_real_types(text))


KEYS = st.lists(
    st.sampled_from(
        ["pipelines", "shop", "source", "sink", "streams", "orders", "spark", "config", "store", "type", "url"]
    )
    | st.sampled_from(["cursor", "partition_by", "slice_bytes", "catalog", "upkeep", "'a.b'", '"x"', "0", "schema"])
    | SCRAPS,
    min_size=1,
    max_size=6,
).map(".".join)
VALUES = st.lists(SCRAPS | st.sampled_from(["[a, b]", "{a: 1}", "'x'", "files", "lake", "5"]), max_size=4).map("".join)
SETS = st.lists(st.builds("{}={}".format, KEYS, VALUES) | KEYS | st.text(max_size=12), min_size=1, max_size=4)


@FUZZ
@given(SETS)
def test_any_overrides(sets: list[str]) -> None:
    (FOLDER / "secret").write_text(SECRET)
    loaded_or_refused(lambda: load(FULL, FOLDER, sets, X=SECRET))
    loaded_or_refused(lambda: with_real_types(EXAMPLES[-1], sets))


@FUZZ
@given(mutated(), SETS)
def test_any_overrides_onto_a_changed_file(text: str, sets: list[str]) -> None:
    (FOLDER / "secret").write_text(SECRET)
    loaded_or_refused(lambda: load(text.encode(errors="surrogatepass"), FOLDER, sets, X=SECRET))


@FUZZ
@given(st.binary(max_size=60), st.sampled_from(["source.url", "source.timeout", "slice_bytes", "sink.format", "store"]))
def test_any_bytes_in_the_file_of_a_secret(raw: bytes, key: str) -> None:
    (FOLDER / "secret").write_bytes(raw)
    loaded_or_refused(lambda: load(FULL, FOLDER, [f"{key}=${{file:secret}}"]))
    loaded_or_refused(lambda: load(FULL, FOLDER, [f"{key}=x${{file:secret:-y}}"]))


@FUZZ
@given(st.text(max_size=30).filter(lambda path: "}" not in path))
def test_any_path_of_a_secret(path: str) -> None:
    loaded_or_refused(lambda: load(FULL, FOLDER, [f"source.url=${{file:{path}}}"]))
