"""What a user may say about a stream's shape. What can be judged without its columns is judged here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from penstock.shaping.types import plain_type

Hashing = Literal["hmac-sha256", "sha256"]
Masking = Literal["null", "redact", "last4", "email"]
CastType = Annotated[str, AfterValidator(plain_type)]

#: columns that are penstock's own
RESERVED = ("_change", "_ingest_seq", "_tombstone")
#: what HMAC-SHA256 gains from is as long as its digest; this is where guessing begins to be hopeless
LEAST_SALT = 16


class Shape(BaseModel):
    """What becomes of a stream's columns and rows before they are delivered; columns by their names in the source."""

    # Inputs are hidden because of the salt.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    where: str | None = Field(
        default=None,
        min_length=1,
        description="only rows for which this is true are delivered, such as `status = 'paid' and amount > 10`; a "
        "delete always is; default: all rows",
        examples=["country = 'DE' and closed_at is null"],
    )
    select: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="the columns that are delivered, in this order; default: all, in the source's order",
        examples=[["id", "email", "phone", "total", "updated_at"]],
    )
    drop: tuple[str, ...] = Field(
        default=(),
        description="columns that are not delivered; default: none",
        examples=[["notes"]],
    )
    cast: dict[str, CastType] = Field(
        default_factory=dict,
        description="columns and the types they become, exactly or not at all: bool, int16, int32, int64, float, "
        "double, decimal(p,s), text, binary, date, timestamp, timestamptz; default: none",
        examples=[{"total": "decimal(12,2)"}],
    )
    on_error: Literal["fail", "null"] = Field(
        default="fail",
        description="a value that its new type cannot hold exactly: `fail` the stream, or deliver `null`",
    )
    hash: dict[str, Hashing] = Field(
        default_factory=dict,
        description="columns of which a digest is delivered, as a list: HMAC-SHA256 with `salt`; or as a mapping to "
        "`hmac-sha256` or `sha256`, which anybody can compute too; default: none",
        examples=[["email"]],
    )
    salt: SecretStr | None = Field(
        default=None,
        min_length=LEAST_SALT,
        description=f"the secret that `hash` needs, at least {LEAST_SALT} characters; never stored; default: none",
        examples=["${SALT}"],
    )
    mask: dict[str, Masking] = Field(
        default_factory=dict,
        description="columns and what is left of their values: `null` nothing, `redact` the text `***`, `last4` the "
        "last four characters of a text, `email` the domain of an address; default: none",
        examples=[{"phone": "last4"}],
    )
    rename: dict[str, str] = Field(
        default_factory=dict,
        description="columns and the names they are delivered by; default: none",
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
                raise ValueError(f"{old} needs a name")
            if new in RESERVED:
                raise ValueError(f"{old} cannot be named {new}: that is a column of penstock's own")
        _once(value.values(), "gives two columns the name")
        return value

    @model_validator(mode="after")
    def _goes_together(self) -> Shape:
        neither = [name for name in self.drop if name in (self.select or ())]
        if neither:
            raise ValueError(f"{neither[0]} is in `select` and in `drop`: take it out of one of them")
        both = [name for name in self.hash if name in self.mask]
        if both:
            raise ValueError(f"{both[0]} cannot be hashed and masked: take it out of `hash` or out of `mask`")
        keyed = [name for name, how in self.hash.items() if how == "hmac-sha256"]
        if keyed and self.salt is None:
            raise ValueError(
                f"`hash` of {keyed[0]} needs a secret: salt: ${{SALT}}; without one, short values can be guessed "
                f"(if you want that: hash: {{{keyed[0]}: sha256}})"
            )
        if self.salt is not None and not keyed:
            raise ValueError("`salt` is given, but nothing is hashed with it")
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
