"""One list of an API: how a page is asked for, what it must have, and how the next one is found."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from penstock.core.documents import canonical
from penstock.errors import StreamFailed
from penstock.links.http.account import Account, Effort, Query
from penstock.links.http.failures import Answer
from penstock.sources.rest.cutting import NoRecords, Page, cut, look_up
from penstock.sources.rest.options import PARENT_ID, Options, StreamOptions
from penstock.sources.rest.stamps import page_second, stamp_page
from penstock.sources.rest.times import Unit

#: makes a request's text for people, for a message
Shown = Callable[[], str]

_NEXT_LINK = re.compile(r'<([^>]*)>\s*;[^,]*\brel="?next"?')


@dataclass(frozen=True, slots=True)
class FetchedPage:
    """A page that is whole and has every field it must have."""

    #: (time, id) of each record, in the page's order; the time is 0 where the list has none
    records: list[tuple[int, str]]
    #: each record's own text, on one line
    texts: list[bytes]
    has_more: bool
    #: where the next page begins; None: there is none
    cursor: str | None
    #: the server's clock; None: it does not say
    date: datetime | None
    #: when each record was last changed, in the stream's unit, where its options name that field
    updated: list[int] | None = None
    #: the second in which it was asked for, by the server's clock
    second: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for; a cursor of some kinds is only valid with the same bounds."""

    gte: int | None
    lt: int | None
    cursor: str | None
    size: int


class ListApi:
    """Fetches pages of one stream."""

    def __init__(self, account: Account, stream: str, options: StreamOptions, source: Options) -> None:
        self.account, self.stream, self.options = account, stream, options
        self.unit = Unit(options.time.unit_name if options.time else "seconds")
        self._path = (options.path or stream).strip("/")
        self._params = dict(options.params)
        self._records = tuple(options.records.split(".")) if options.records else ()
        self._updated = options.changes.updated if options.changes else None
        wanted = [options.id, *([options.time.field] if options.time else [])]
        wanted += [self._updated] if self._updated else []
        self._fields = tuple(dict.fromkeys(path.partition(".")[0] for path in wanted))
        self._beside = tuple(path for path in (options.paging.more, options.paging.next_field) if path)
        url = urlsplit(source.base_url)
        self._server = f"{url.scheme}://{url.netloc}"
        self._secret_parameters = set(source.auth.query or ()) if source.auth else set[str]()
        self.effort = Effort()
        #: what a run should say about the list, once
        self.remarks: list[str] = []

    def under(self, parent: str) -> ListApi:
        """The same list below one object of the parent stream."""
        if parent in (".", ".."):
            raise StreamFailed(
                f"a parent has the id {parent!r}, which names another path of the API",
                next_step="set `id` of the parent stream to the field that its children are found by",
                stream=self.stream,
            )
        list_ = copy(self)
        list_._path = self._path.replace(PARENT_ID, quote(parent, safe=""))
        list_._params = {name: value.replace(PARENT_ID, parent) for name, value in self._params.items()}
        return list_

    def request_of_list(self) -> tuple[str, dict[str, str]]:
        """Path and query of the list itself, without paging and filters."""
        return self._path, dict(self._params)

    @property
    def cursor_is_id(self) -> bool:
        return self.options.paging.by == "last_id"

    @property
    def counts_pages(self) -> bool:
        """Whether the next page is named by a count, which is only right while nothing before it changes."""
        return self.options.paging.by in ("page", "offset")

    async def fetch(self, asked: Asked, urgency: int = 0) -> FetchedPage:
        """A page; StreamFailed if it lacks something, ResourceRefused or ConnectionFailed by its status."""
        path, query = self._request(asked)

        def parse(answer: Answer) -> FetchedPage:
            shown = partial(self._show, path, query, answer)
            try:
                page = cut(answer.body, self._records, self._fields, self._beside)
            except NoRecords as error:
                raise self._unfit(shown, str(error), "set `records` of the stream to the path of its objects") from None
            records = self._identify_plain(page.records) or [
                self._identify(record, number, shown) for number, record in enumerate(page.records)
            ]
            has_more, cursor = self._next(page, answer, asked, records, shown)
            texts, updated, second = page.texts, None, page_second(answer)
            if self.options.changes is not None:
                texts = stamp_page(texts, second)
            if self._updated:
                updated = [
                    self._read_updated(record, *known, shown)
                    for record, known in zip(page.records, records, strict=True)
                ]
            return FetchedPage(records, texts, has_more, cursor, answer.date, updated, second)

        return await self.account.fetch(path, query, parse, stream=self.stream, effort=self.effort, urgency=urgency)

    def _show(self, path: str, query: Query, answer: Answer) -> str:
        """A request for people, with the provider's id of it."""
        asked = self.account.show(path, query)
        return f"{asked} (request id {answer.request_id})" if answer.request_id else asked

    # ------------------------------------------------------------ asking

    def _request(self, asked: Asked) -> tuple[str, Query]:
        paging, time = self.options.paging, self.options.time
        query = {**self._params, paging.size_parameter: str(asked.size)}
        gte, lt, following = asked.gte, asked.lt, asked.cursor
        if asked.cursor is not None and not self.cursor_is_id:
            document = json.loads(asked.cursor)
            gte, lt, following = document["gte"], document["lt"], str(document["next"])
            if paging.by in ("link", "next_url"):
                url = urlsplit(following)
                return f"{self._server}{url.path}", parse_qsl(url.query, keep_blank_values=True)
            if paging.by in ("page", "offset"):
                # A number counts pages of one size.
                query[paging.size_parameter] = str(document["size"])
        if time is not None:
            if gte:
                query[time.since] = self.unit.spell(gte)
            if lt is not None:
                query[time.before] = self.unit.spell(lt)
        if following is not None:
            query[paging.names_parameter] = following
        return self._path, query

    def _next(
        self, page: Page, answer: Answer, asked: Asked, records: list[tuple[int, str]], shown: Shown
    ) -> tuple[bool, str | None]:
        """Whether more follow, and the cursor that they begin after."""
        paging = self.options.paging
        if paging.by == "none":
            return False, None
        if paging.by == "last_id":
            more = self._has_more(page, records, shown)
            return more, records[-1][1] if more and records else None
        if paging.by in ("page", "offset"):
            before = json.loads(asked.cursor) if asked.cursor else {}
            if paging.by == "page" and records and before.get("count", asked.size) < before.get("size", 0):
                raise self._cut_pages(shown, before)
            if not self._has_more(page, records, shown):
                return False, None
            at = before["next"] if before else {"page": 1, "offset": 0}[paging.by]
            return True, self._bound(asked, at + (1 if paging.by == "page" else len(records)), len(records))
        if paging.by == "link":
            found = _NEXT_LINK.search(answer.headers.get("link", ""))
            following: Any = found[1] if found else None
        else:
            following = look_up(page.fields, paging.next_field)
        if following in (None, "", False):
            return False, None
        if not isinstance(following, str | int):
            raise self._unfit(shown, f"field {paging.next_field} is neither a string nor a number", "correct `paging`")
        if paging.by == "token":
            return True, self._bound(asked, following)
        return True, self._bound(asked, self._without_secrets(str(following)))

    def _has_more(self, page: Page, records: list[tuple[int, str]], shown: Shown) -> bool:
        field = self.options.paging.more
        if field is None:
            # A page may be short because the server cuts it: only an empty one is certainly the last.
            return bool(records)
        more = look_up(page.fields, field)
        if not isinstance(more, bool):
            raise self._unfit(
                shown,
                f"field {field}, which says whether more pages follow, is {'missing' if more is None else repr(more)}",
                "set `more` under `paging` to the right field, or to null",
            )
        return more

    def _bound(self, asked: Asked, following: str | int, count: int | None = None) -> str:
        """A cursor with the bounds that it is valid for: a range may have become smaller since.

        `count` is the number of objects on the page before it, where pages have numbers.
        """
        counted = {} if count is None else {"count": count}
        if asked.cursor is not None:
            return canonical({**json.loads(asked.cursor), "next": following, **counted})
        return canonical({"next": following, "gte": asked.gte, "lt": asked.lt, "size": asked.size, **counted})

    def _cut_pages(self, shown: Shown, before: dict[str, Any]) -> StreamFailed:
        return self._unfit(
            shown,
            f"the page before it has {before['count']} objects, although {before['size']} were asked for: if the "
            "server cuts pages, page numbers may skip objects",
            f"set `size` under `paging` to what the server gives ({before['count']}?)",
        )

    def _without_secrets(self, address: str) -> str:
        """The path and query of an address on the same server; the credentials in it are left out."""
        url = urlsplit(address)
        if url.netloc and f"{url.scheme}://{url.netloc}" != self._server:
            raise StreamFailed(
                f"the next page lies on another server, {url.hostname}: credentials are not sent there",
                next_step="set `base_url` to the server that the API names in its pages",
                stream=self.stream,
            )
        pairs = parse_qsl(url.query, keep_blank_values=True)
        query = [(name, value) for name, value in pairs if name not in self._secret_parameters]
        return f"{url.path}?{urlencode(query)}"

    # ------------------------------------------------------------ what a record must have

    def _identify_plain(self, records: list[Any]) -> list[tuple[int, str]]:
        """The same for a whole page of plain values; []: they are to be looked at one by one."""
        if self.options.time is None or self.unit.name not in ("seconds", "milliseconds"):
            return []
        time, id_ = self.options.time.field, self.options.id
        try:
            found = [(record[time], record[id_]) for record in records]
        except (KeyError, TypeError):
            return []
        return found if all(type(at) is int and type(id_) is str and id_ for at, id_ in found) else []

    def _identify(self, record: Any, number: int, shown: Shown) -> tuple[int, str]:
        id_ = look_up(record, self.options.id)
        if isinstance(id_, bool) or not isinstance(id_, str | int) or id_ == "":
            problem = "missing" if id_ is None else repr(id_)[:50]
            raise self._unfit(
                shown, f"record {number + 1}: field {self.options.id} is {problem}", "set `id` of the stream"
            )
        if self.options.time is None:
            return 0, str(id_)
        field = self.options.time.field
        value = look_up(record, field)
        try:
            return self.unit.read(value), str(id_)
        except ValueError as error:
            problem = f"field {field} is missing or null" if value is None else f"field {field}: {error}"
            raise self._unfit(
                shown, f"record {id_}: {problem}", "set `field` and `unit` under `time` as the API writes its times"
            ) from None

    def _read_updated(self, record: Any, time: int, id_: str, shown: Shown) -> int:
        """When a record was last changed: when it was created, where the field is null."""
        value = look_up(record, self._updated or "")
        try:
            return time if value is None else self.unit.read(value)
        except ValueError as error:
            raise self._unfit(
                shown, f"record {id_}: field {self._updated}: {error}", "set `updated` under `changes` to a time"
            ) from None

    def _unfit(self, shown: Shown, what: str, next_step: str) -> StreamFailed:
        return StreamFailed(f"{shown()}: {what}", next_step=next_step, stream=self.stream)
