"""A stream's shape, resolved against the columns of its source. The content carries it, so that a replay reads alike.

Does not import pyarrow: a run that finds nothing new needs this module too. Holds a digest of the salt, never the salt.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from penstock.core.content import Column, Content
from penstock.core.names import did_you_mean
from penstock.core.types import Plain, Type
from penstock.errors import StreamRefused
from penstock.ports import Remark
from penstock.shaping.options import RESERVED, Shape
from penstock.shaping.types import CASTS, family, is_castable, type_of

_MASKED = {
    "null": "nothing of {} is delivered",
    "redact": "of {} only `***` is delivered",
    "last4": "of {} only the last four characters are delivered",
    "email": "of {} only the domain is delivered",
}


@dataclass(frozen=True, slots=True)
class ResolvedShape:
    """The changes to a source's columns and rows."""

    #: the source's columns, as its own content has them
    reads: tuple[Column, ...]
    #: the delivered columns in order: the source's name and the new name
    names: tuple[tuple[str, str], ...]
    where: str | None
    cast: Mapping[str, str]
    on_error: str
    hash: Mapping[str, str]
    #: a digest that tells salts apart; None: no salt is needed
    salt: str | None
    mask: Mapping[str, str]

    def columns(self) -> tuple[Column, ...]:
        """The delivered columns."""
        known = {column.name: column for column in self.reads}
        return tuple(self._column(known[old], new) for old, new in self.names)

    def _column(self, column: Column, name: str) -> Column:
        old = column.name
        if old in self.hash or self.mask.get(old, "null") != "null":
            return Column(name, Plain.STRING)
        # The origin does not describe values that were cast.
        return Column(name, type_of(self.cast[old])) if old in self.cast else replace(column, name=name)

    def add_to(self, content: Content) -> Content:
        """The source's content in this shape."""
        document = {
            **asdict(self),
            "names": [list(pair) for pair in self.names],
            "reads": [column.document() for column in self.reads],
        }
        return replace(content, columns=self.columns(), shape=document)

    @classmethod
    def of(cls, content: Content) -> ResolvedShape | None:
        """The shape of a content; None: it has none."""
        document: Any = content.shape
        if document is None:
            return None
        reads, names = tuple(map(Column.of, document["reads"])), tuple((old, new) for old, new in document["names"])
        return cls(**{**document, "reads": reads, "names": names})

    def explain(self, key: tuple[str, ...], key_lost: bool) -> Iterator[Remark]:
        """Say what the shape means for consumers.

        `key` identifies a row at the source; `key_lost` says that it does not identify a shaped row.
        """
        salted = [name for name, how in self.hash.items() if how == "hmac-sha256"]
        unsalted = [name for name, how in self.hash.items() if how == "sha256"]
        if salted:
            what = f"of {_join(salted)} only a digest is delivered, and guessing a value requires the salt"
            yield Remark("guarantee", what)
        if unsalted:
            what = f"of {_join(unsalted)} only a digest is delivered, but anyone can check a guess against it"
            yield Remark("gap", f"{what}; `hmac-sha256` with a `salt` prevents that")
        for name, how in self.mask.items():
            yield Remark("guarantee", _MASKED[how].format(name))
        if self.where is not None:
            yield Remark(
                "gap",
                "rows that do not meet `where` of the shape are not delivered; a row that stops meeting it after an "
                "update keeps its last delivered version",
            )
        if self.cast and self.on_error == "null":
            yield Remark("gap", f"values of {_join(self.cast)} that their new type cannot hold are delivered as NULL")
        if key_lost:
            what = f"the primary key ({', '.join(key)}) is not delivered unchanged"
            yield Remark("gap", f"{what}: the sink has no key unless one is configured")


def _join(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def remove_shape(content: Content) -> Content:
    """A content as the source gave it."""
    resolved = ResolvedShape.of(content)
    return content if resolved is None else replace(content, columns=resolved.reads, shape=None)


def digest_salt(salt: str) -> str:
    """Sixteen digits that tell a salt from another; as hard to reverse as the delivered digests."""
    return hmac.new(salt.encode(), b"penstock: which salt is this", hashlib.sha256).hexdigest()[:16]


# ---------------------------------------------------------------- against a source's columns


def resolve(stream: str, shape: Shape, content: Content) -> ResolvedShape:
    """Resolve a shape against a source's content; StreamRefused if it does not fit the columns."""
    columns = [column for column in content.columns if column.name not in RESERVED]
    check = _ShapeCheck(stream, shape, {column.name: column.type for column in columns})
    check.check_names()
    check.check_types()
    names = check.delivered_names()
    return ResolvedShape(
        reads=content.columns,
        names=names,
        where=shape.where,
        cast=shape.cast,
        on_error=shape.on_error,
        hash=shape.hash,
        salt=digest_salt(shape.salt.get_secret_value()) if shape.salt is not None else None,
        mask=shape.mask,
    )


@dataclass(frozen=True, slots=True)
class _ShapeCheck:
    stream: str
    shape: Shape
    #: the source's columns, with their types
    types: Mapping[str, Type]

    def refuse(self, what: str, step: str) -> StreamRefused:
        return StreamRefused(what, next_step=step, stream=self.stream)

    def check_names(self) -> None:
        shape = self.shape
        rules: dict[str, Iterable[str]] = {"select": shape.select or (), "drop": shape.drop, "cast": shape.cast}
        for rule, names in (rules | {"hash": shape.hash, "mask": shape.mask, "rename": shape.rename}).items():
            for name in names:
                if name not in self.types:
                    raise self._unknown(rule, name)

    def _unknown(self, rule: str, name: str) -> StreamRefused:
        if name in RESERVED:
            return self.refuse(f"`{rule}` names {name}, one of penstock's own columns", f"remove it from `{rule}`")
        renamed = next((old for old, new in self.shape.rename.items() if new == name), None)
        if renamed is not None:
            step = f"write {renamed}: rules name columns as the source does, and `rename` comes last"
            return self.refuse(f"`{rule}` names {name}, which the source calls {renamed}", step)
        return self.refuse(
            f"`{rule}` names {name}, which is not a column of the source{did_you_mean(name, self.types)}",
            f"correct `{rule}` of the stream's `shape`; the source has: {', '.join(self.types)}",
        )

    def check_types(self) -> None:
        for name, type_ in self.shape.cast.items():
            if not is_castable(self.types[name], type_):
                allowed = CASTS.get(family(self.types[name]) or "")
                step = f"cast it to {', '.join(allowed)}" if allowed else "deliver it as it is, or `drop` it"
                raise self.refuse(f"{name} cannot be cast to {type_}: it is {self.types[name]}", step)
        for name in self.shape.hash:
            if self._after_cast(name) is None:
                what = f"{name} cannot be hashed: it is {self.types[name]}, which has no canonical text form"
                raise self.refuse(what, f"`drop` it, or mask it: mask: {{{name}: redact}}")
        for name, how in self.shape.mask.items():
            if how in ("last4", "email") and self._after_cast(name) != "text":
                raise self.refuse(
                    f"{name} cannot be masked by `{how}`: it is {self.types[name]}, and `{how}` is for text",
                    f"use `redact` or `null`, or cast it first: cast: {{{name}: text}}",
                )

    def _after_cast(self, name: str) -> str | None:
        """The family of a column's type when it is hashed or masked."""
        type_ = self.shape.cast.get(name)
        return family(type_of(type_) if type_ else self.types[name])

    def delivered_names(self) -> tuple[tuple[str, str], ...]:
        shape = self.shape
        chosen = shape.select or tuple(name for name in self.types if name not in shape.drop)
        if not chosen:
            raise self.refuse("no column is delivered: `drop` names all of them", "remove one from `drop`")
        names = tuple((name, shape.rename.get(name, name)) for name in chosen)
        seen: dict[str, str] = {}
        for old, new in names:
            if new in seen:
                moved, stays = (old, seen[new]) if old in shape.rename else (seen[new], old)
                raise self.refuse(
                    f"`rename` gives {moved} the name {new}, which another column has",
                    f"give it another name, or rename or `drop` {stays} too",
                )
            seen[new] = old
        return names


# ---------------------------------------------------------------- the key


def key_after(shape: Shape, key: Sequence[str], distinct_after_cast: Mapping[str, bool]) -> tuple[str, ...]:
    """The columns that identify a shaped row; () if they no longer do.

    `distinct_after_cast`: for each cast key column, whether different values stay different. A digest identifies a row
    as well as its value does; a mask does not, nor does a value that may have become NULL.
    """
    for name in key:
        gone = name in shape.drop or (shape.select is not None and name not in shape.select)
        merged = name in shape.cast and (shape.on_error == "null" or not distinct_after_cast.get(name, False))
        if gone or merged or name in shape.mask:
            return ()
    return tuple(shape.rename.get(name, name) for name in key)
