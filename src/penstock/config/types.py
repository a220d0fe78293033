"""Types of values in a pipeline file, and the base of the models of penstock's own keys."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from penstock.core.sizes import DURATION_PATTERN, SIZE_PATTERN, duration, size

SizeText = Annotated[str, Field(pattern=SIZE_PATTERN, json_schema_extra={"format": "size"})]
Size = Annotated[int, BeforeValidator(size, json_schema_input_type=int | SizeText), Field(gt=0)]
DurationText = Annotated[str, Field(pattern=DURATION_PATTERN, json_schema_extra={"format": "time span"})]
Duration = Annotated[
    timedelta,
    BeforeValidator(duration, json_schema_input_type=Annotated[int, Field(gt=0)] | DurationText),
    Field(gt=timedelta()),
]


class Keys(BaseModel):
    """Base of the models of penstock's own keys."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
