"""A stream's shape, worked out for the columns that its source has: what a content says of it, and a replay reads by.

Knows no pyarrow: a run that finds nothing new works it out too. The salt is not here, only what tells it from others.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.core.content import Column, Content
from penstock.core.names import did_you_mean
from penstock.core.types import Plain, Type
from penstock.errors import StreamRefused
from penstock.shaping.options import RESERVED, Shape
from penstock.shaping.types import CASTS, castable, family, type_of


@dataclass(frozen=True, slots=True)
class Rules:
    """What becomes of a source's columns and rows."""

    #: the source's columns, as its own content has them
    reads: tuple[Column, ...]
    #: what is delivered, in its order: the source's name and the name it gets
    names: tuple[tuple[str, str], ...]
    where: str | None
    cast: Mapping[str, str]
    on_error: str
    hash: Mapping[str, str]
    #: tells salts apart, and says nothing of one; None: none is needed
    salt: str | None
    mask: Mapping[str, str]

    def columns(self) -> tuple[Column, ...]:
        """What is delivered, as a content lists it."""
        known = {column.name: column for column in self.reads}
        return tuple(self._column(known[old], new) for old, new in self.names)

    def _column(self, column: Column, name: str) -> Column:
        old = column.name
        if old in self.hash or self.mask.get(old, "null") != "null":
            return Column(name, Plain.STRING)
        # Where it comes from means nothing once its values are others.
        return Column(name, type_of(self.cast[old])) if old in self.cast else replace(column, name=name)

    def around(self, content: Content) -> Content:
        """The source's content with these rules."""
        rules = {
            "where": self.where,
            "cast": dict(self.cast),
            "on_error": self.on_error,
            "hash": dict(self.hash),
            "salt": self.salt,
            "mask": dict(self.mask),
            "names": [list(pair) for pair in self.names],
            "reads": [column.document() for column in self.reads],
        }
        return replace(content, columns=self.columns(), shape=rules)

    @classmethod
    def of(cls, content: Content) -> Rules | None:
        """The rules of a content; None: it has none."""
        said: Any = content.shape
        if said is None:
            return None
        return cls(
            reads=tuple(map(Column.of, said["reads"])),
            names=tuple((old, new) for old, new in said["names"]),
            where=said["where"],
            cast=said["cast"],
            on_error=said["on_error"],
            hash=said["hash"],
            salt=said["salt"],
            mask=said["mask"],
        )


def own(content: Content) -> Content:
    """A content as the source gave it."""
    rules = Rules.of(content)
    return content if rules is None else replace(content, columns=rules.reads, shape=None)


def salt_digest(salt: str) -> str:
    """Sixteen digits that tell a salt from another one; as hard to turn back as the digests that are delivered."""
    return hmac.new(salt.encode(), b"penstock: which salt is this", hashlib.sha256).hexdigest()[:16]


# ---------------------------------------------------------------- against a source's columns


def resolved(stream: str, shape: Shape, content: Content) -> Rules:
    """A shape for a source's content; StreamRefused if it does not fit its columns."""
    columns = [column for column in content.columns if column.name not in RESERVED]
    check = _Check(stream, shape, {column.name: column.type for column in columns})
    check.names_are_known()
    check.types_fit()
    names = check.delivered()
    return Rules(
        reads=content.columns,
        names=names,
        where=shape.where,
        cast=shape.cast,
        on_error=shape.on_error,
        hash=shape.hash,
        salt=salt_digest(shape.salt.get_secret_value()) if shape.salt is not None else None,
        mask=shape.mask,
    )


@dataclass(frozen=True, slots=True)
class _Check:
    stream: str
    shape: Shape
    #: the source's columns, with their types
    types: Mapping[str, Type]

    def refuse(self, what: str, step: str) -> StreamRefused:
        return StreamRefused(what, next_step=step, stream=self.stream)

    def names_are_known(self) -> None:
        shape = self.shape
        rules: dict[str, Iterable[str]] = {"select": shape.select or (), "drop": shape.drop, "cast": shape.cast}
        for rule, names in (rules | {"hash": shape.hash, "mask": shape.mask, "rename": shape.rename}).items():
            for name in names:
                if name not in self.types:
                    raise self._unknown(rule, name)

    def _unknown(self, rule: str, name: str) -> StreamRefused:
        if name in RESERVED:
            return self.refuse(f"`{rule}` names {name}, a column of penstock's own", f"take it out of `{rule}`")
        renamed = next((old for old, new in self.shape.rename.items() if new == name), None)
        if renamed is not None:
            step = f"write {renamed}: rules name columns as the source does, and `rename` comes last"
            return self.refuse(f"`{rule}` names {name}, which the source calls {renamed}", step)
        return self.refuse(
            f"`{rule}` names {name}, which is not a column of the source{did_you_mean(name, self.types)}",
            f"correct `{rule}` of the stream's `shape`; the source has: {', '.join(self.types)}",
        )

    def types_fit(self) -> None:
        for name, type_ in self.shape.cast.items():
            if not castable(self.types[name], type_):
                allowed = CASTS.get(family(self.types[name]) or "")
                step = f"cast it to {', '.join(allowed)}" if allowed else "deliver it as it is, or `drop` it"
                raise self.refuse(f"{name} cannot be cast to {type_}: it is {self.types[name]}", step)
        for name in self.shape.hash:
            if self._after_cast(name) is None:
                what = f"{name} cannot be hashed: it is {self.types[name]}, which has no one spelling"
                raise self.refuse(what, f"`drop` it, or mask it: mask: {{{name}: redact}}")
        for name, how in self.shape.mask.items():
            if how in ("last4", "email") and self._after_cast(name) != "text":
                raise self.refuse(
                    f"{name} cannot be masked by `{how}`: it is {self.types[name]}, and `{how}` is for text",
                    f"use `redact` or `null`, or cast it first: cast: {{{name}: text}}",
                )

    def _after_cast(self, name: str) -> str | None:
        """The family of what a column is when it is hashed or masked."""
        type_ = self.shape.cast.get(name)
        return family(type_of(type_) if type_ else self.types[name])

    def delivered(self) -> tuple[tuple[str, str], ...]:
        shape = self.shape
        chosen = shape.select or tuple(name for name in self.types if name not in shape.drop)
        if not chosen:
            raise self.refuse("no column is delivered: `drop` names all of them", "take one out of `drop`")
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


def key_after(shape: Shape, key: Sequence[str], cast_apart: Mapping[str, bool]) -> tuple[str, ...]:
    """The columns that identify a row once it has been shaped; () where they no longer do.

    `cast_apart`: of key columns that are cast, whether two values that differ still do. A digest identifies as well as
    what it was made from; a mask does not, nor does a value that may have become NULL.
    """
    for name in key:
        gone = name in shape.drop or (shape.select is not None and name not in shape.select)
        merged = name in shape.cast and (shape.on_error == "null" or not cast_apart.get(name, False))
        if gone or merged or name in shape.mask:
            return ()
    return tuple(shape.rename.get(name, name) for name in key)
