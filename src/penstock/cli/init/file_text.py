"""Writes the text of a pipeline file: each stream with its reasons above it, as comments."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.cli.shared.render import count, size
from penstock.ports import DiscoveredStream

#: maximum characters of a comment line
LINE_CHARACTERS = 110
#: indentation of a stream in a new file
INDENT = "      "
#: unquoted words that YAML readers do not treat as strings
_RESERVED_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}


@dataclass(frozen=True, slots=True)
class Variable:
    """A value that the file takes from the environment instead of containing it."""

    name: str


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream for the file."""

    offered: DiscoveredStream
    #: the options in the file: the proposal and those that the sink needs
    options: Mapping[str, Any]
    #: why the stream is commented out; None if it is synced
    left_out: str | None = None


def file_text(
    opening: Sequence[str],
    pipeline: str,
    source: Mapping[str, Any],
    sink: Mapping[str, Any],
    streams: Sequence[Stream],
) -> str:
    """The whole file; `opening` is its first comment."""
    lines = [line for text in opening for line in comment(text, "")]
    lines += ["pipelines:", f"  {scalar(pipeline, key=True)}:"]
    for side, options in (("source", source), ("sink", sink)):
        lines.append(f"    {side}:")
        lines += [f"      {scalar(key, key=True)}: {value(setting)}" for key, setting in options.items()]
    lines += ["    streams:", *stream_lines(streams, INDENT)]
    return "\n".join(lines) + "\n"


def stream_lines(streams: Sequence[Stream], indent: str) -> list[str]:
    """The streams as lines of YAML; streams that are left out are comments."""
    lines: list[str] = []
    for stream in streams:
        if stream.left_out is None:
            comments = [_about(stream.offered), *stream.offered.reasons]
            lines += ["", *(line for text in comments for line in comment(text, indent)), *_options(stream, indent)]
    left = [stream for stream in streams if stream.left_out is not None]
    if left:
        lines += ["", *comment("Not synced:", indent)]
    for stream in left:
        lines += [f"{indent}#", *comment(f"{_about(stream.offered)}: {stream.left_out}", indent)]
        lines += [f"{indent}# {line.removeprefix(indent)}" for line in _options(stream, indent)]
    return lines


def _about(offered: DiscoveredStream) -> str:
    facts = [offered.what]
    if offered.rows is not None:
        facts.append(f"~{count(offered.rows, 'row')}")
    if offered.bytes is not None:
        facts.append(size(offered.bytes))
    facts.append(f"key: {', '.join(offered.primary_key)}" if offered.primary_key else "no primary key")
    return ", ".join(facts)


def _options(stream: Stream, indent: str) -> list[str]:
    name = scalar(stream.offered.name, key=True)
    if not stream.options:
        return [f"{indent}{name}: {{}}"]
    return [f"{indent}{name}:", *(f"{indent}  {key}: {value(setting)}" for key, setting in stream.options.items())]


def comment(text: str, indent: str) -> list[str]:
    """Format a text as comment lines; control characters in names are replaced."""
    plain = "".join(c if c.isprintable() else "?" for c in text)
    if plain.endswith(";"):
        return [f"{indent}#   {plain}"]  # an SQL statement, not wrapped
    wrapped = textwrap.wrap(
        plain, LINE_CHARACTERS - len(indent), subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    return [f"{indent}# {line}" for line in wrapped] or [f"{indent}#"]


def value(setting: Any) -> str:
    """Format a value as YAML on one line."""
    if isinstance(setting, Variable):
        return f'"${{{setting.name}}}"'
    if isinstance(setting, str):
        return scalar(setting)
    if isinstance(setting, list | tuple):
        return f"[{', '.join(value(each) for each in setting)}]"
    if isinstance(setting, Mapping):
        return f"{{{', '.join(f'{scalar(key, key=True)}: {value(each)}' for key, each in setting.items())}}}"
    return json.dumps(setting)


def scalar(text: str, *, key: bool = False) -> str:
    """Format a string as YAML, quoted where necessary. `${` is escaped in values; keys take no variables."""
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text) and text.lower() not in _RESERVED_WORDS:
        return text
    return '"' + "".join(map(_escaped, text if key else text.replace("${", "$${"))) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"
