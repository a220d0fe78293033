"""Options of a files source and its streams."""

from __future__ import annotations

import codecs
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from penstock.core.sizes import DURATION_PATTERN, duration
from penstock.core.types import parse_type
from penstock.links.globs import check_pattern

Format = Literal["parquet", "orc", "csv", "ndjson", "json"]
FORMATS = ("parquet", "orc", "csv", "ndjson", "json")
#: formats whose values are text
TEXT = ("csv", "ndjson", "json")
#: what a file's name ends with
SUFFIXES: dict[str, Format] = {
    ".parquet": "parquet",
    ".orc": "orc",
    ".csv": "csv",
    ".tsv": "csv",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".json": "json",
}
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
#: types that values of text can have
TEXT_TYPES = (
    "bool, int16, int32, int64, float32, float64, decimal(p,s), string, json, date, time, timestamp, timestamptz"
)

DurationText = Annotated[str, Field(pattern=DURATION_PATTERN, json_schema_extra={"format": "time span"})]
Settle = Annotated[
    timedelta,
    BeforeValidator(duration, json_schema_input_type=Annotated[int, Field(ge=0)] | DurationText),
    Field(ge=timedelta(), le=timedelta(hours=1)),
]


def _column_type(value: str) -> str:
    return str(parse_type(value))


ColumnType = Annotated[str, AfterValidator(_column_type)]
Pattern = Annotated[str, AfterValidator(check_pattern)]


class Options(BaseModel):
    """A local folder with files."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    directory: str = Field(
        description="folder of the files, relative to the pipeline file; `path` of each stream starts here",
        examples=["incoming"],
    )
    settle: Settle = Field(
        default=timedelta(seconds=5),
        description="a file is read once it had the same size, modification time and inode for so long; a run waits "
        "for it; default: 5 seconds",
    )

    @field_validator("directory")
    @classmethod
    def _local(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("must not be empty, for example: directory: incoming")
        if "://" in value:
            kind = value.partition("://")[0]
            raise ValueError(
                f"{kind}:// is not supported: the files source reads local folders only; copy the files into a folder, "
                "or mount the bucket"
            )
        return value


class CsvOptions(BaseModel):
    """The dialect of CSV files."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    delimiter: str = Field(default=",", min_length=1, max_length=1, description="character between two fields")
    quote: str = Field(
        default='"', max_length=1, description="character around a field; doubled within one; empty: there is none"
    )
    escape: str = Field(
        default="",
        max_length=1,
        description="character before a quote or delimiter that is part of a field; default: none",
        examples=["\\"],
    )
    header: bool = Field(
        default=True,
        description="the first line names the columns; without it, `columns` are in the order of the fields",
    )
    encoding: str = Field(default="utf-8", description="encoding of the text, by the name that Python has for it")
    null_values: tuple[str, ...] = Field(
        default=("",),
        description="unquoted fields that are NULL; default: an empty field",
        examples=[["", "NULL", "\\N"]],
    )

    @field_validator("delimiter", "quote", "escape")
    @classmethod
    def _ascii(cls, value: str) -> str:
        if not value.isascii() or value in ("\n", "\r"):
            raise ValueError("must be one ASCII character, and no line break")
        return value

    @field_validator("encoding")
    @classmethod
    def _known(cls, value: str) -> str:
        try:
            return codecs.lookup(value).name
        except LookupError:
            raise ValueError(f"there is no encoding {value!r}; use a name such as utf-8, latin-1 or cp1252") from None


class StreamOptions(BaseModel):
    """Which files a stream reads, and what is in them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: Pattern = Field(
        description="pattern of the files below `directory`: `*`, `?` and `[abc]` within a name, `**` for any number "
        "of folders; names that begin with `.` or `_`, and symbolic links, are left out",
        examples=["orders/**/*.parquet"],
    )
    include: tuple[Pattern, ...] = Field(
        default=(), description="more patterns of files that the stream reads; default: none", examples=[["old/*.csv"]]
    )
    exclude: tuple[Pattern, ...] = Field(
        default=(), description="patterns of files to leave out; default: none", examples=[["orders/tmp-*"]]
    )
    since: datetime | None = Field(
        default=None,
        description="leave out files that were modified before (ISO 8601, UTC if it has no zone); default: none",
        examples=["2026-01-01"],
    )
    format: Format | None = Field(
        default=None,
        description="`parquet`, `orc`, `csv`, `ndjson` (one JSON object per line) or `json` (an array of objects); "
        "default: by the end of `path`",
        examples=["csv"],
    )
    compression: Literal["auto", "none", "gzip", "zstd"] = Field(
        default="auto", description="of csv, ndjson and json: `auto` goes by the names (`.gz`, `.zst`)"
    )
    csv: CsvOptions = Field(
        default_factory=CsvOptions,
        description="the dialect of csv files",
        examples=[{"delimiter": ";", "encoding": "latin-1"}],
    )
    columns: dict[str, ColumnType] = Field(
        default_factory=dict,
        description=f"columns to read and their types; of text: {TEXT_TYPES}; default: the file's own columns, which "
        "for text are guessed from the first file and kept from then on",
        examples=[{"id": "int64", "total": "decimal(12,2)", "placed_at": "timestamptz"}],
    )
    partitions: dict[str, ColumnType] = Field(
        default_factory=dict,
        description="columns whose values are in names of folders such as `day=2026-01-31`, and their types; "
        "default: none",
        examples=[{"day": "date"}],
    )
    primary_key: tuple[str, ...] = Field(
        default=(), description="columns that identify a row; default: none", examples=[["id"]]
    )
    bad_values: Literal["fail", "null"] = Field(
        default="fail",
        description="a value without an exact form in its column's type: `fail` the stream and name file and line, or "
        "deliver `null` and count it; a line that cannot be split into fields always fails",
    )
    on_change: Literal["refuse", "ignore"] = Field(
        default="refuse",
        description="a file that was delivered is there with another content or under another name: `refuse` stops the "
        "stream, `ignore` does not read it and warns",
    )
    on_vanish: Literal["ignore", "refuse"] = Field(
        default="ignore",
        description="a file that was delivered is gone: `ignore` keeps its rows, `refuse` stops the stream",
    )

    @field_validator("on_change", mode="before")
    @classmethod
    def _no_reload(cls, value: Any) -> Any:
        if value == "reload":
            raise ValueError(
                "reload is not supported yet: give a new version of a file a new name, or set `ignore`; "
                "`penstock state reset` reads every file again"
            )
        return value

    @field_validator("bad_values", mode="before")
    @classmethod
    def _no_quarantine(cls, value: Any) -> Any:
        if value == "quarantine":
            raise ValueError(
                "quarantine is not supported yet by the files source: use fail or null; `bad_rows: quarantine` of a "
                "postgres sink is for rows that its table does not accept"
            )
        return value

    @field_validator("format", mode="before")
    @classmethod
    def _readable(cls, value: Any) -> Any:
        if value == "avro":
            raise ValueError("avro is not supported: convert the files to parquet first")
        return value

    @field_validator("since", mode="before")
    @classmethod
    def _time(cls, value: Any) -> Any:
        if isinstance(value, str):
            try:
                value = datetime.fromisoformat(value)
            except ValueError:
                raise ValueError(f"{value!r} is no time; write it like 2026-01-31 or 2026-01-31T12:00:00Z") from None
        if isinstance(value, datetime) and value.tzinfo is None:
            return value.replace(tzinfo=UTC)
        return value

    @model_validator(mode="after")
    def _goes_together(self) -> StreamOptions:
        if self.chosen_format is None:
            raise ValueError(f"`format` is missing, and the end of `path` does not tell it: use {', '.join(FORMATS)}")
        both = [name for name in self.partitions if name in self.columns]
        if both:
            raise ValueError(f"{both[0]} is in both `columns` and `partitions`: remove it from one of them")
        if self.chosen_format == "csv" and not self.csv.header and not self.columns:
            raise ValueError("`csv: {header: false}` requires `columns`, in the order of the fields")
        for name in self.primary_key:
            if self.columns and name not in self.columns and name not in self.partitions:
                raise ValueError(f"`primary_key` names {name}, which is no column: list it under `columns`")
        return self

    @property
    def chosen_format(self) -> Format | None:
        """The format, by the end of the pattern where it is not set."""
        if self.format is not None:
            return self.format
        path = self.path
        for suffix in COMPRESSIONS:
            path = path.removesuffix(suffix)
        return next((format_ for suffix, format_ in SUFFIXES.items() if path.endswith(suffix)), None)

    @property
    def patterns(self) -> tuple[str, ...]:
        return (self.path, *self.include)
