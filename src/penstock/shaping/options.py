"""Options of a stream's `shape`, with the checks that need no knowledge of its columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from penstock.shaping.types import normalize_type

Hashing = Literal["hmac-sha256", "sha256"]
Masking = Literal["null", "redact", "last4", "email"]
CastType = Annotated[str, AfterValidator(normalize_type)]

#: names of penstock's own columns
RESERVED = ("_change", "_ingest_seq", "_tombstone")
#: minimum characters of a salt: a shorter one could be guessed
MIN_SALT_CHARACTERS = 16


class Shape(BaseModel):
    """Changes to a stream's columns and rows before delivery; columns have the source's names."""

    # Inputs are hidden because of the salt.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    where: str | None = Field(
        default=None,
        min_length=1,
        description="condition such as `status = 'paid' and amount > 10` for rows to deliver; deletes always pass; "
        "default: all rows",
        examples=["country = 'DE' and closed_at is null"],
    )
    select: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="columns to deliver, in this order; default: all, in the source's order",
        examples=[["id", "email", "phone", "total", "updated_at"]],
    )
    drop: tuple[str, ...] = Field(
        default=(),
        description="columns to omit; default: none",
        examples=[["notes"]],
    )
    cast: dict[str, CastType] = Field(
        default_factory=dict,
        description="columns and their new types, for exact conversions only: bool, int16, int32, int64, float, "
        "double, decimal(p,s), text, binary, date, timestamp, timestamptz; default: none",
        examples=[{"total": "decimal(12,2)"}],
    )
    on_error: Literal["fail", "null"] = Field(
        default="fail",
        description="a value that the new type cannot represent exactly: `fail` the stream, or deliver `null`",
    )
    hash: dict[str, Hashing] = Field(
        default_factory=dict,
        description="columns to replace by a digest: a list for HMAC-SHA256 with `salt`, or a mapping to `hmac-sha256` "
        "or `sha256` (which anyone can compute); default: none",
        examples=[["email"]],
    )
    salt: SecretStr | None = Field(
        default=None,
        min_length=MIN_SALT_CHARACTERS,
        description=f"secret for `hash`, at least {MIN_SALT_CHARACTERS} characters; never stored; default: none",
        examples=["${SALT}"],
    )
    mask: dict[str, Masking] = Field(
        default_factory=dict,
        description="columns and how to mask them: `null` delivers NULL, `redact` the text `***`, `last4` the last "
        "four characters, `email` the domain of an address; default: none",
        examples=[{"phone": "last4"}],
    )
    rename: dict[str, str] = Field(
        default_factory=dict,
        description="columns and their new names; default: none",
        examples=[{"id": "customer_id"}],
    )

    @field_validator("hash", mode="before", json_schema_input_type=tuple[str, ...] | dict[str, Hashing])
    @classmethod
    def _keyed(cls, value: Any) -> Any:
        if isinstance(value, list | tuple) and all(isinstance(name, str) for name in value):
            return dict.fromkeys(_once(value), "hmac-sha256")
        return value

    @field_validator("select", "drop")
    @classmethod
    def _each_once(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if value is None else tuple(_once(value))

    @field_validator("rename")
    @classmethod
    def _to_free_names(cls, value: dict[str, str]) -> dict[str, str]:
        for old, new in value.items():
            if not new.strip():
                raise ValueError(f"{old} needs a new name")
            if new in RESERVED:
                raise ValueError(f"{old} cannot be renamed to {new}: penstock uses that name itself")
        _once(value.values(), "gives two columns the name")
        return value

    @model_validator(mode="after")
    def _goes_together(self) -> Shape:
        neither = [name for name in self.drop if name in (self.select or ())]
        if neither:
            raise ValueError(f"{neither[0]} is in both `select` and `drop`: remove it from one of them")
        both = [name for name in self.hash if name in self.mask]
        if both:
            raise ValueError(f"{both[0]} is in both `hash` and `mask`: remove it from one of them")
        keyed = [name for name, how in self.hash.items() if how == "hmac-sha256"]
        if keyed and self.salt is None:
            raise ValueError(
                f"`hash` of {keyed[0]} requires a secret, for example salt: ${{SALT}}; without one, short values can "
                f"be guessed (to accept that: hash: {{{keyed[0]}: sha256}})"
            )
        if self.salt is not None and not keyed:
            raise ValueError("`salt` is set, but no column is hashed with it")
        for rule in ("cast", "hash", "mask", "rename"):
            gone = [name for name in getattr(self, rule) if not self._delivers(name)]
            if gone:
                raise ValueError(f"`{rule}` names {gone[0]}, which is not delivered: see `select` and `drop`")
        return self

    def _delivers(self, column: str) -> bool:
        return column not in self.drop and (self.select is None or column in self.select)


def _once(names: Iterable[str], what: str = "names") -> list[str]:
    seen: list[str] = []
    for name in names:
        if name in seen:
            raise ValueError(f"names {name} twice" if what == "names" else f"{what} {name}")
        seen.append(name)
    return seen
