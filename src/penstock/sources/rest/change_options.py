"""Options of a list whose objects change after they were created, or are deleted."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from penstock.core.sizes import DURATION_PATTERN, duration

DurationText = Annotated[str, Field(pattern=DURATION_PATTERN, json_schema_extra={"format": "time span"})]
Duration = Annotated[
    timedelta,
    BeforeValidator(duration, json_schema_input_type=Annotated[int, Field(ge=0)] | DurationText),
    Field(ge=timedelta(0)),
]


class Changes(BaseModel):
    """How changes and deletes of objects are found."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    updated: str | None = Field(
        default=None,
        min_length=1,
        description="path of the field that says when an object was last changed; default: none, the server's time of "
        "the page tells which version is newer",
        examples=["updated"],
    )
    deleted: str | None = Field(
        default=None,
        min_length=1,
        description="path of the field that says that an object is deleted: true, or a time; default: none, deletes "
        "are not seen",
        examples=["deleted"],
    )
    rescan: Duration | None = Field(
        default=None,
        description="read the objects that were created in this time again, to find changes; default: they are read "
        "once",
        examples=["7d"],
    )
    every: Duration = Field(
        default=timedelta(0), description="time between two such readings; default: every run reads them again"
    )
