"""Whatever is done to a file: it is loaded, or refused with at least one mistake that names its line."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.config.fakes import load
from tests.config.test_load import FULL

from penstock.config import File
from penstock.errors import ConfigError

SECRET = "s3cr3t-v4lue"
_TEMPORARY = tempfile.TemporaryDirectory(prefix="penstock-fuzz-")
FOLDER = Path(_TEMPORARY.name)
LINES = FULL.strip().splitlines()
TOKENS = re.findall(r"\w+|\s+|[^\w\s]", FULL)
#: pieces that mean something to YAML, to variables or to the models
SCRAPS = (
    st.sampled_from(list("{}[]:,-?*&!|>'\"%@`#~$\n\t\x00\ufeff\u2028é"))
    | st.sampled_from(["${", "${X}", "${DATABASE_URL}", "$${", "<<: ", "&a ", "*a", "!!int ", "!!set ", "---", "..."])
    | st.sampled_from(["null", "true", "1e999", "-0", ".inf", "1" * 5000, "{" * 30, "'" * 3, "\n  ", "\n      "])
    | st.sampled_from(["type", "source", "sink", "streams", "postgres", "files", "slice_bytes", "url", "by"])
    | st.text(max_size=8)
)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """The valid file, its tokens dropped, doubled, swapped or replaced."""
    tokens = list(TOKENS)
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


def refusal(text: bytes) -> ConfigError | None:
    try:
        assert isinstance(load(text, FOLDER, X=SECRET), File)
    except ConfigError as error:
        return error
    return None


def loaded_or_refused(text: bytes) -> None:
    error = refusal(text)
    if error is None:
        return
    path = f"{FOLDER}/shop.yaml:"
    lines = [line.removeprefix(path) for line in error.what.splitlines() if line.startswith(path)]
    assert lines, error.what
    assert all(re.match(r"\d+: .", line) for line in lines)
    assert not any(secret in str(error) for secret in (SECRET, "hunter2"))
    assert all(character.isprintable() or character == "\n" for character in str(error))


FUZZ = settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@FUZZ
@given(mutated() | reordered())
def test_a_changed_file(text: str) -> None:
    loaded_or_refused(text.encode(errors="surrogatepass"))


@FUZZ
@given(st.binary(max_size=200))
def test_any_bytes(raw: bytes) -> None:
    loaded_or_refused(raw)
