"""A source whose columns have changed, as the sink is to meet it: around any source, and without effect on the others.

The engine decides what the sink's columns become (`core.drift`); here it is carried out. The source itself gets back
the content that it gave, and its batches are fitted to the sink's columns on the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from penstock.core.content import Content
from penstock.core.slices import Slice
from penstock.ports import Reading
from penstock.shaping.around import Around
from penstock.shaping.fitting import Fitted


class Drifting(Around):
    """The same streams as those of the source inside, with the columns that the sink has."""

    def own(self, content: Content) -> Content:
        return content.undrifted

    @contextmanager
    def reading(self, slice_: Slice) -> Iterator[Reading]:
        content = Content.parse(slice_.content)
        with super().reading(slice_) as reading:
            drifts = content.drift is not None
            yield replace(reading, reader=Fitted.of(reading.reader, content)) if drifts else reading
