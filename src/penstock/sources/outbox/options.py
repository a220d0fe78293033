"""Options of an outbox source and its streams: which tables feed an entity, and how."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from penstock.links.postgres.literals import TableName
from penstock.links.postgres.options import ServerOptions
from penstock.sources.outbox.expressions import parse_match, placeholders


def _one_or_more(value: object) -> object:
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


def _each_once(value: tuple[str, ...]) -> tuple[str, ...]:
    twice = [name for index, name in enumerate(value) if name in value[:index]]
    if twice:
        raise ValueError(f"names {twice[0]} twice")
    return value


def _is_a_table(value: str) -> str:
    TableName.read(value, "public")
    return value


def _is_an_expression(value: str) -> str:
    placeholders(value)
    return value


Names = Annotated[
    tuple[str, ...],
    BeforeValidator(_one_or_more, json_schema_input_type=str | tuple[str, ...]),
    AfterValidator(_each_once),
]
TableText = Annotated[str, AfterValidator(_is_a_table)]
Expression = Annotated[str, Field(min_length=1), AfterValidator(_is_an_expression)]

_TABLE = "the table or `schema.table`, spelled exactly as in Postgres"
_COMPUTED = (
    "fields by name, each with an SQL expression; `{column}` stands for a column of the row, `{{` and `}}` for braces"
)


class Options(ServerOptions):
    """A Postgres database with an outbox, which triggers fill."""

    default_schema: str = Field(
        default="public", alias="schema", min_length=1, description="the schema of tables named without one"
    )
    outbox_schema: str = Field(
        default="penstock_outbox",
        min_length=1,
        max_length=63,
        description="the schema of the outbox and of the trigger functions; `penstock triggers apply` creates it",
    )
    lock_timeout: float = Field(
        default=5.0,
        gt=0,
        allow_inf_nan=False,
        description="seconds that `penstock triggers apply` and `drop` wait for a lock on a table",
    )
    keep_hours: float = Field(
        default=24.0,
        ge=0,
        allow_inf_nan=False,
        description="hours for which documents that all pipelines have read stay in the outbox, so that a restored "
        "sink can be filled again",
    )
    warn_after: float = Field(
        default=300.0,
        gt=0,
        allow_inf_nan=False,
        description="seconds after which a transaction that keeps the outbox from being pruned is a warning",
    )
    timeline: int | None = Field(
        default=None,
        ge=1,
        description="confirms, after a failover, that no committed data was lost on this timeline; default: a new "
        "timeline stops the streams",
        examples=[2],
    )


class DirectTable(BaseModel):
    """A table of which each row belongs to one entity."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    table: TableText = Field(description=_TABLE, examples=["images"])
    key: Names = Field(
        min_length=1, description="column or columns that hold the key of the entity, unique", examples=["id"]
    )
    columns: Names = Field(
        default=(),
        description="columns that become fields of the same name; default: none",
        examples=[["url", "title"]],
    )
    computed: dict[str, Expression] = Field(
        default_factory=dict, description=_COMPUTED, examples=[{"title_length": "length({title})"}]
    )
    creates: bool = Field(
        default=False,
        description="a row of this table brings its entity into being; exactly one table of a stream does",
    )
    on_delete: Literal["delete", "clear", "ignore"] | None = Field(
        default=None,
        description="a deleted row: `delete` its entity, `clear` the fields of this table, or `ignore` it; default: "
        "`delete` for the table that creates, `clear` for others",
    )

    @property
    def deletes(self) -> str:
        return self.on_delete or ("delete" if self.creates else "clear")

    @model_validator(mode="after")
    def _gives_something(self) -> DirectTable:
        if not self.columns and not self.computed and not self.creates:
            raise ValueError("needs `columns` or `computed`: it gives the entity no field")
        if both := sorted(set(self.columns) & set(self.computed)):
            raise ValueError(f"field '{both[0]}' is both in `columns` and in `computed`")
        if own := sorted(set(self.columns) & set(self.key)):
            raise ValueError(f"column '{own[0]}' is in `key` and need not be in `columns`")
        return self


class MultiValueTable(BaseModel):
    """A join table: each row is one value of a field that holds several."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    table: TableText = Field(description=_TABLE, examples=["image_tags"])
    key: Names = Field(
        min_length=1, description="column or columns that hold the key of the entity", examples=["image_id"]
    )
    field: str = Field(min_length=1, description="the field", examples=["tags"])
    value: str = Field(min_length=1, description="the column with the value", examples=["tag_id"])
    where: Expression | None = Field(
        default=None,
        description="SQL condition of the rows that count, with `{column}` for a column; a row that begins or ceases "
        "to fulfil it is added or removed; default: all rows",
        examples=["{kind} = 'user'"],
    )


class FanOutTable(BaseModel):
    """A table of which each row sets fields of all entities that match it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    table: TableText = Field(description=_TABLE, examples=["posts"])
    match: str = Field(
        min_length=1,
        description="which entities: `FIELD eq {COLUMN}`, several joined by `and`",
        examples=["post_id eq {id}"],
    )
    columns: Names = Field(
        default=(), description="columns that set fields of the same name; default: none", examples=[["nsfw"]]
    )
    computed: dict[str, Expression] = Field(
        default_factory=dict, description=_COMPUTED, examples=[{"post_title": "{title}"}]
    )
    values: Expression | None = Field(
        default=None,
        description="a subquery of one row whose columns set fields of their names, with `{column}` for a column of "
        "the row; evaluated when one of these columns changes; default: none",
        examples=["SELECT u.name AS author FROM public.users u WHERE u.id = {user_id}"],
    )

    @field_validator("match")
    @classmethod
    def _is_a_match(cls, value: str) -> str:
        parse_match(value)
        return value

    @model_validator(mode="after")
    def _gives_something(self) -> FanOutTable:
        if not self.columns and not self.computed and not self.values:
            raise ValueError("needs `columns`, `computed` or `values`: it sets no field")
        if both := sorted(set(self.columns) & set(self.computed)):
            raise ValueError(f"field '{both[0]}' is both in `columns` and in `computed`")
        return self


class StreamOptions(BaseModel):
    """An entity, and the tables that feed it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    direct: tuple[DirectTable, ...] = Field(
        description="tables of which each row belongs to one entity",
        examples=[[{"table": "images", "key": "id", "columns": ["url", "post_id"], "creates": True}]],
    )
    multi_value: tuple[MultiValueTable, ...] = Field(
        default=(),
        description="join tables: each row is one value of a field that holds several; default: none",
        examples=[[{"table": "image_tags", "key": "image_id", "field": "tags", "value": "tag_id"}]],
    )
    fan_out: tuple[FanOutTable, ...] = Field(
        default=(),
        description="tables of which each row sets fields of all entities that match it; default: none",
        examples=[[{"table": "posts", "match": "post_id eq {id}", "computed": {"post_title": "{title}"}}]],
    )
    first_load: bool = Field(
        default=True,
        description="deliver the rows that the tables have already, as if each were inserted now; again for a table "
        "whose declaration changes. `false`: only changes from now on",
    )

    @model_validator(mode="after")
    def _one_table_creates(self) -> StreamOptions:
        creating = [each.table for each in self.direct if each.creates]
        if len(creating) != 1:
            found = ", ".join(creating) if creating else "none does"
            raise ValueError(f"exactly one table of `direct` must have `creates: true` ({found})")
        return self

    @property
    def creating(self) -> DirectTable:
        return next(each for each in self.direct if each.creates)
