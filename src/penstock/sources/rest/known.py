"""Knows which records have come before: an object that is listed twice is delivered once.

The same id with another content may be another object, whose record is then missing: that is worth a warning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import google_crc32c

from penstock.sources.rest.lists import FetchedPage

#: ids that a warning names
NAMED_IDS = 5


@dataclass
class Repeats:
    """Records that came a second time, and were dropped."""

    #: those with the same content as before
    same: int = 0
    #: ids that came with several contents
    differing: dict[str, None] = field(default_factory=dict)

    def describe_same(self) -> str | None:
        """A line about records that came twice; None: there are none."""
        if not self.same:
            return None
        records = "1 record" if self.same == 1 else f"{self.same} records"
        return f"the API listed {records} a second time: each was delivered once"

    def describe_differing(self, id_field: str) -> str | None:
        """A warning about ids with several contents; None: there are none."""
        if not self.differing:
            return None
        named = ", ".join([*self.differing][:NAMED_IDS])
        more = f" and {len(self.differing) - NAMED_IDS} more" if len(self.differing) > NAMED_IDS else ""
        return (
            f"the API listed records with the same {id_field} and different contents, and one of each was delivered: "
            f"{named}{more}. If they are different objects, set `id` of the stream to a field that is unique, and "
            "reset the stream. If one object changed while it was read, `changes` finds the newer version"
        )


class KnownIds:
    """The ids of the records so far, each with a checksum of its text."""

    def __init__(self, repeats: Repeats | None = None, *, compares: bool = True) -> None:
        """Without `compares`, contents may differ: the stream has versions of objects."""
        self._texts: dict[str, int] = {}
        self._compares = compares
        self.repeats = repeats or Repeats()

    def __contains__(self, id_: str) -> bool:
        return id_ in self._texts

    def take(self, page: FetchedPage, numbers: Sequence[int], *, is_reread: bool = False) -> list[int]:
        """The records whose ids have not come before; they have come from here on.

        Of a page that is read again, records are known, and their contents may have changed.
        """
        records, texts = page.records, page.texts
        if len(numbers) == len(records):
            ids = [id_ for _, id_ in records]
            if len(set(ids)) == len(ids) and self._texts.keys().isdisjoint(ids):
                self._texts.update(zip(ids, map(google_crc32c.value, texts), strict=True))
                return [*numbers]
        fresh, chosen = list[int](), set(numbers)
        for number, (_, id_) in enumerate(records):
            known = self._texts.get(id_)
            if known is None:
                if number in chosen:
                    self._texts[id_] = google_crc32c.value(texts[number])
                    fresh.append(number)
            elif is_reread:
                continue
            elif self._compares and known != google_crc32c.value(texts[number]):
                self.repeats.differing[id_] = None
            else:
                self.repeats.same += number in chosen
        return fresh
