"""The source that `init` proposes a file for: a database by its URL, an API by its address and paths, or Stripe."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from penstock import sources
from penstock.cli.init.file_text import Variable
from penstock.config.load import names_of
from penstock.core.names import suggest
from penstock.errors import UNTOUCHED, InputError

#: the environment variable with Stripe's key, unless --auth names another
STRIPE_KEY = "STRIPE_API_KEY"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Origin:
    """A source, as the file has it and as it is opened."""

    #: its options in the file; a secret is a Variable
    shown: Mapping[str, Any]
    #: the same with the values of the variables
    options: Mapping[str, Any]
    #: the pipeline's name, unless another is given
    name: str
    #: bare options of the streams to sample; empty: the source knows its streams
    streams: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    #: the first lines of the file
    opening: tuple[str, ...] = ()
    #: a stream in messages: table, list
    noun: str = "table"
    #: where the streams are, in messages
    place: str = ""


def api_origin(
    type_: str, url: str | None, paths: Sequence[str], auth: Sequence[str], environment: Mapping[str, str]
) -> Origin:
    """An API by its address and the paths of its lists; Stripe by its key."""
    return _stripe(url, paths, auth, environment) if type_ == "stripe" else _rest(url, paths, auth, environment)


def _stripe(url: str | None, paths: Sequence[str], auth: Sequence[str], environment: Mapping[str, str]) -> Origin:
    if paths:
        raise refuse("--path cannot be used with --source stripe", "choose lists with --include")
    if len(auth) > 1 or (auth and not auth[0].startswith("bearer=")):
        raise refuse("Stripe takes one key: --auth bearer=NAME", f"omit --auth to take the key from {STRIPE_KEY}")
    variable = auth[0].removeprefix("bearer=") if auth else STRIPE_KEY
    shown: dict[str, Any] = {"type": "stripe", "api_key": Variable(variable)}
    if url:
        shown["base_url"] = url
    opening = (
        "Proposed by `penstock init` for the lists of a Stripe account. Columns come from a sample of each list; the "
        "whole object is in the column json. Change whatever you know better.",
        f"The environment variable {variable} holds the key.",
    )
    options = shown | {"api_key": _read(variable, environment)}
    return Origin(shown, options, "stripe", opening=opening, noun="list", place="the Stripe account")


def _rest(url: str | None, paths: Sequence[str], auth: Sequence[str], environment: Mapping[str, str]) -> Origin:
    if not url:
        raise refuse("there is no address of the API", "penstock init https://api.example.com/v1 --path charges")
    if not paths:
        raise refuse("there is no path of a list", f"name each list: penstock init {url} --path charges")
    shown: dict[str, Any] = {"type": "rest", "base_url": url}
    credentials, values, variables = _credentials(auth, environment)
    opening = [
        "Proposed by `penstock init` for lists of a REST API, from a sample of each. The reasons are given above each "
        "stream. The whole object is in the column json. Change whatever you know better.",
        "A list with a time delivers new objects. A list without is read in full in every run.",
    ]
    if variables:
        opening.append(f"Credentials are taken from the environment: {', '.join(variables)}.")
    host = re.sub(r"^(api|www)\.", "", urlsplit(url).hostname or "api").partition(".")[0]
    return Origin(
        shown | ({"auth": credentials} if auth else {}),
        shown | ({"auth": values} if auth else {}),
        re.sub(r"[^A-Za-z0-9_-]+", "_", host) or "api",
        _streams(paths),
        tuple(opening),
        noun="list",
        place="the API",
    )


def _streams(paths: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Bare options by stream name. A path below another one, `customers/{id}/cards`, has that one as its parent."""
    names = {path.strip("/"): _name_of(path) for path in paths}
    if len(set(names.values())) < len(names):
        raise refuse("two paths would give streams of the same name", "propose them in two files, and merge these")
    streams: dict[str, dict[str, Any]] = {}
    for path, name in names.items():
        streams[name] = {} if path == name else {"path": path}
        above, found, _ = path.partition("/{id}")
        if found:
            if above not in names:
                raise refuse(f"the ids for {path} come from a list that is not named", f"add --path {above}")
            streams[name]["parent"] = names[above]
    return streams


def _name_of(path: str) -> str:
    name = re.sub(r"[^A-Za-z0-9]+", "_", path.replace("/{id}", "")).strip("_")
    if not name:
        raise refuse(f"--path {path!r} names no list", "write the path of a list below the address, such as charges")
    return name


def _credentials(
    auth: Sequence[str], environment: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """`auth` as the file has it, the same with its values, and the variables that it takes."""
    shown: dict[str, Any] = {}
    values: dict[str, Any] = {}
    variables = []
    for given in auth:
        kind, _, variable = given.partition("=")
        kind, _, name = kind.partition(":")
        if kind not in ("bearer", "basic", "header", "query") or (kind in ("header", "query")) != bool(name):
            raise refuse(
                f"--auth {given!r} is none of bearer=NAME, basic=NAME, header:HEADER=NAME, query:PARAMETER=NAME",
                "name the environment variable with the secret, such as --auth bearer=API_TOKEN",
            )
        secret = _read(variable, environment)
        variables.append(variable)
        if name:
            shown.setdefault(kind, {})[name] = Variable(variable)
            values.setdefault(kind, {})[name] = secret
        else:
            shown[kind], values[kind] = Variable(variable), secret
    return shown, values, variables


def _read(variable: str, environment: Mapping[str, str]) -> str:
    if not _VARIABLE.fullmatch(variable):
        raise refuse(f"{variable!r} is not a valid name of an environment variable", "use letters, digits and _")
    if not environment.get(variable):
        raise refuse(f"the environment variable {variable} is not set", f"set {variable} to the secret of the API")
    return environment[variable]


def postgres_origin(url: str | None, variable: str, schema: str) -> Origin:
    """A database by its URL, or by the variable with it."""
    url = url or os.environ.get(variable)
    if not url:
        raise refuse(
            f"there is no URL argument, and the environment variable {variable} is not set",
            f"penstock init postgresql://user:password@host/database, or set {variable}",
        )
    shown = {"type": "postgres", "url": Variable(variable), "schema": schema}
    path = re.sub(r"[?#].*", "", url).partition("://")[2].partition("/")[2]
    return Origin(
        shown,
        shown | {"url": url},
        re.sub(r"[^A-Za-z0-9_-]+", "_", path).strip("_") or "main",
        opening=(
            f"Proposed by `penstock init` for the schema {schema} of a Postgres database. The reasons are given "
            "above each stream. Change whatever you know better.",
            "A stream with a cursor delivers new and changed rows, and does not see deletes. A stream without a cursor "
            "is read in full in every run.",
        ),
        place=f"schema {schema}",
    )


def other_origin(type_: str, url: str | None, variable: str) -> Origin:
    """A source of another type: its URL if it has an option `url`, and otherwise its defaults."""
    try:
        options_model = sources.load(type_).Options
    except KeyError:
        raise refuse(
            f"there is no source type {type_!r}; {suggest(type_, sources.types(), 'sources')}",
            "choose a source, for example --source postgres",
        ) from None
    has_url = "url" in names_of(options_model)
    if url and not has_url:
        raise refuse(f"a source of type {type_} has no option `url`", "omit the URL")
    value = url or os.environ.get(variable)
    uses_url = has_url and value is not None
    shown = {"type": type_, **({"url": Variable(variable)} if uses_url else {})}
    opening = (f"Proposed by `penstock init` for a source of type {type_}. The reasons are given above each stream.",)
    options = shown | ({"url": value} if uses_url else {})
    return Origin(shown, options, type_, opening=opening, noun="stream", place=f"the source of type {type_}")


def refuse(what: str, next_step: str) -> InputError:
    """The error for input that cannot be used."""
    return InputError(what, safe=UNTOUCHED, next_step=next_step)
