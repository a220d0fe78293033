"""Proposes how a list is read: guesses from the first pages, and asks the API whether the guess is right.

A list costs fifty requests at most, all of them GET.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.errors import StreamFailed, StreamRefused
from penstock.links.http.account import Account
from penstock.links.http.failures import GONE, Answer, Malformed, ResourceRefused
from penstock.ports import DiscoveredStream
from penstock.sources.rest import guesses
from penstock.sources.rest.content import WHOLE, content_of
from penstock.sources.rest.cutting import look_up
from penstock.sources.rest.lists import Asked, FetchedPage, ListApi
from penstock.sources.rest.options import Options, Paging, StreamOptions, Time
from penstock.sources.rest.parents import ChildList
from penstock.sources.rest.times import Unit

#: pages whose records columns are proposed from
SAMPLE_PAGES = 3
#: parents of which one with children is looked for
SAMPLE_PARENTS = 10
#: objects of a page by which it is tried how pages are asked for
PROBED_PAGE_ROWS = 2


@dataclass
class ListProposal:
    """Samples one list. What the pipeline file says of it already is kept, and not guessed."""

    account: Account
    stream: str
    options: StreamOptions
    source: Options
    #: the stream as a list below a parent; None: it has none
    children: ChildList | None = None
    #: options that are the preset's, and are not to be written
    is_preset: bool = False
    _reasons: list[str] = field(default_factory=list)
    #: the object that a list below a parent is sampled by
    _parent: str | None = None

    async def discover(self) -> DiscoveredStream:
        """The proposal; a list that cannot be read, or whose records are not found, is refused with the reason."""
        bare = DiscoveredStream(self.stream, "list", (("json", "json"),), read_by=self.stream)
        renamed = {"list": self.stream} if self.is_preset else {"path": self.options.path or self.stream}
        bare = replace(bare, options_if_renamed=renamed)
        try:
            await self._find_parent()
            found = self.options if self.is_preset else await self._find_options()
            records = await self._sample(found)
        except (StreamFailed, StreamRefused) as failed:
            return replace(bare, options=self._shown(self.options), refused=f"{failed.what}: {failed.next_step}")
        found = self._with_columns(found, records)
        content = content_of(self.stream, found, self.source)
        return replace(
            bare,
            columns=tuple((column.name, str(column.type)) for column in content.columns),
            primary_key=content.key,
            options=self._shown(found),
            reasons=tuple(self._reasons),
            reads_only_new=content.mode != WHOLE,
        )

    # ------------------------------------------------------------ asking

    async def _find_parent(self) -> None:
        """Read the list below one parent from here on, if it has parents: the first of some that has children."""
        if self.children is None:
            return
        page = await self.children.parents.fetch(Asked(self.children.gte, self.children.lt, None, SAMPLE_PARENTS))
        if not page.records:
            raise self._refuse(
                f"the parent stream {self.children.parents.stream} has no objects to sample it by",
                "write its options by hand",
            )
        self._reasons.append(f"sampled below one object of {self.children.parents.stream}; read whole in every run")
        for _, self._parent in page.records[:SAMPLE_PARENTS]:
            try:
                children, _ = await self._get({})
            except ResourceRefused as refused:
                if refused.status not in GONE:
                    raise
                continue
            path = guesses.find_records(children, self.stream)
            if path is not None and _records_at(children, path):
                return
        self._parent = page.records[0][1]

    def _api(self, options: StreamOptions) -> ListApi:
        # Texts as the API wrote them: without the stamps that a spool has.
        api = ListApi(self.account, self.stream, options.model_copy(update={"changes": None}), self.source)
        return api if self._parent is None else api.under(self._parent)

    async def _get(self, more: Mapping[str, str]) -> tuple[Any, dict[str, str]]:
        path, query = self._api(self.options).request_of_list()

        def parse(answer: Answer) -> tuple[Any, dict[str, str]]:
            try:
                return json.loads(answer.body), answer.headers
            except ValueError as error:
                raise Malformed(str(error)[:100]) from None

        return await self.account.fetch(path, {**query, **more}, parse, stream=self.stream)

    # ------------------------------------------------------------ how the list is read

    async def _find_options(self) -> StreamOptions:
        given = self.options.model_fields_set
        page, headers = await self._get({})
        path = self.options.records if "records" in given else guesses.find_records(page, self.stream)
        if path is None:
            raise self._refuse("the page has no list of objects", "set `records`, or correct the stream's `path`")
        options = self.options.model_copy(update={"records": path})
        records = [each for each in _records_at(page, path) if isinstance(each, dict)]
        if not records:
            self._reasons.append("the list is empty: id, time, paging and columns could not be sampled")
            return self._settle(options, id=self.options.id, paging=self.options.paging)
        id_ = self.options.id if "id" in given else guesses.find_id(records)
        if id_ is None:
            raise self._refuse("no field of the sampled objects identifies them", "set `id` to the field that does")
        options = options.model_copy(update={"id": id_})
        paging = self.options.paging if "paging" in given else await self._find_paging(options, page, headers, records)
        options = options.model_copy(update={"paging": paging})
        order, time = self.options.order, self.options.time
        if time is None and not self.options.incremental and self.children is None:
            order, time = await self._find_time(options)
        return self._settle(options, id=id_, paging=paging, order=order, time=time)

    def _settle(self, options: StreamOptions, **found: Any) -> StreamOptions:
        """The options with what differs from the defaults, as a file has them."""
        wanted = options.model_copy(update=found).model_dump(by_alias=True, exclude_defaults=True)
        if found.get("time") is not None:
            time = found["time"]
            wanted["time"] = time.model_dump(exclude_unset=True)
        return StreamOptions.model_validate(wanted)

    async def _find_paging(
        self, options: StreamOptions, page: Any, headers: Mapping[str, str], records: Sequence[Any]
    ) -> Paging:
        """The way to ask for the next page that gives other objects than the first."""
        name = await self._find_size_parameter(options.records, len(records))
        if name is None:
            self._reasons.append("no parameter for the size of a page was found: the API's own size counts")
            few = max(1, len(records))
        else:
            page, headers = await self._get({name: str(PROBED_PAGE_ROWS)})
            few = PROBED_PAGE_ROWS
        for candidate in guesses.find_pagings(page, headers, name or "limit", few):
            tried = options.model_copy(update={"paging": candidate})
            if await self._leads_on(tried):
                self._reasons.append(f"paging by {candidate.by}: tried, the second page has other objects")
                return candidate.model_copy(update={"size": await self._find_size(tried) if name else few})
        more = next((each.more for each in guesses.find_pagings(page, headers, "limit", few) if each.more), None)
        if more:
            self._reasons.append(
                f"paging by last_id: a guess, because the page has {more}; it has no second page to try"
            )
            return Paging(more=more, size_parameter=name or "limit")
        if guesses.is_round(len(records)):
            raise self._refuse(
                f"the first page has {len(records)} objects, and how the next one is asked for was not found",
                "set `paging`; `by: none` if the API gives the whole list in one page",
            )
        self._reasons.append(
            f"no way to a second page was found: the {len(records)} objects of the first count as the whole list"
        )
        return Paging(by="none")

    async def _find_size_parameter(self, records: str, count: int) -> str | None:
        if count <= PROBED_PAGE_ROWS:
            return "limit"
        for name in guesses.SIZE_PARAMETERS:
            try:
                page, _ = await self._get({name: str(PROBED_PAGE_ROWS)})
            except (StreamFailed, StreamRefused):
                continue
            if len(_records_at(page, records)) == PROBED_PAGE_ROWS:
                return name
        return None

    async def _find_size(self, options: StreamOptions) -> int:
        """The size that is asked for: 100, or what the server gives of it where more pages follow."""
        wanted = Paging().size
        api = self._api(options.model_copy(update={"paging": options.paging.model_copy(update={"size": wanted})}))
        page = await api.fetch(Asked(None, None, None, wanted))
        if not page.has_more or len(page.records) >= wanted:
            return wanted
        try:
            following = await api.fetch(Asked(None, None, page.cursor, wanted))
        except StreamFailed:
            return len(page.records)  # a numbered page after one that the server has cut is refused
        return len(page.records) if following.records else wanted

    async def _leads_on(self, options: StreamOptions) -> bool:
        api = self._api(options)
        try:
            first = await api.fetch(Asked(None, None, None, options.paging.size))
            if not first.has_more or first.cursor is None:
                return False
            second = await api.fetch(Asked(None, None, first.cursor, options.paging.size))
        except (StreamFailed, StreamRefused):
            return False
        return {id_ for _, id_ in first.records}.isdisjoint(id_ for _, id_ in second.records)

    async def _find_time(self, options: StreamOptions) -> tuple[Any, Time | None]:
        """The field and the parameters by which the API filters, shown by a range within the sample."""
        sample = await self._sample(options)
        for name, unit in guesses.find_times(sample):
            read = Unit(unit).read
            times = [read(record[name]) for record in sample]
            order, bounds = guesses.find_order(times), guesses.range_of_sample(times)
            if order is None or bounds is None:
                self._reasons.append(
                    f"field {name} has times, and the sample is not ordered by it, or has too few to try a filter"
                )
                continue
            inside = {str(r[options.id]) for r, at in zip(sample, times, strict=True) if bounds[0] <= at < bounds[1]}
            for candidate in guesses.find_filters(name, unit):
                if await self._filters(options.model_copy(update={"time": candidate, "order": order}), bounds, inside):
                    self._reasons.append(
                        f"time {name}, in {guesses.show_unit(unit)}, {order} first: the API filters by "
                        f"{candidate.since} and {candidate.before} (tried)"
                    )
                    return order, candidate
            self._reasons.append(
                f"field {name} has times: if the API filters by it, set `time` and its parameters, and a run reads "
                "only new objects"
            )
        self._reasons.append("no filter by time was found: read whole in every run")
        return options.order, None

    async def _filters(self, options: StreamOptions, bounds: tuple[int, int], inside: set[str]) -> bool:
        try:
            page = await self._api(options).fetch(Asked(*bounds, None, options.paging.size))
        except (StreamFailed, StreamRefused):
            return False
        found = {id_ for _, id_ in page.records}
        # Of a range with more objects than a page has, the page is full of others: one of them at least must be known.
        return bool(found & inside) and all(bounds[0] <= at < bounds[1] for at, _ in page.records)

    # ------------------------------------------------------------ columns

    async def _sample(self, options: StreamOptions) -> list[dict[str, Any]]:
        """The objects of the first pages."""
        api, cursor = self._api(options), None
        texts: list[bytes] = []
        for _ in range(SAMPLE_PAGES):
            page: FetchedPage = await api.fetch(Asked(None, None, cursor, options.paging.size))
            texts += page.texts
            cursor = page.cursor
            if not page.has_more or cursor is None:
                break
        return [json.loads(text) for text in texts]

    def _with_columns(self, options: StreamOptions, records: Sequence[dict[str, Any]]) -> StreamOptions:
        taken = [name for name in (options.json_column, options.parent_column if options.parent else None) if name]
        known = [options.id, *([options.time.field] if options.time else []), *options.columns]
        unit = options.time.unit if options.time else "seconds"
        columns, left = guesses.propose_columns(records, known, taken, unit)
        if records:
            objects = "1 object" if len(records) == 1 else f"{len(records)} objects"
            self._reasons.append(
                f"columns: from a sample of {objects}; a later value that does not fit stops the stream"
            )
        elif not any("empty" in reason for reason in self._reasons):
            self._reasons.append("the list is empty: columns could not be sampled")
        self._reasons += [f"only in column {options.json_column}: {each}" for each in left if options.json_column]
        return options.model_copy(update={"columns": {**options.columns, **columns}})

    def _shown(self, options: StreamOptions) -> dict[str, Any]:
        """The options as a pipeline file has them."""
        if self.is_preset:
            return {"columns": options.columns} if options.columns else {}
        shown: dict[str, Any] = options.model_dump(by_alias=True, exclude_defaults=True)
        if options.time is not None:
            shown["time"] = options.time.model_dump(exclude_unset=True)
        return {name: shown[name] for name in _order(shown)}

    def _refuse(self, what: str, next_step: str) -> StreamRefused:
        return StreamRefused(what, next_step=next_step, stream=self.stream)


def _records_at(page: Any, path: str) -> list[Any]:
    found = look_up(page, path) if path else page
    return found if isinstance(found, list) else []


def _order(shown: Mapping[str, Any]) -> Iterator[str]:
    """The keys in the order of the model, with the columns last."""
    yield from (name for name in shown if name not in ("columns", "fields"))
    yield from (name for name in ("columns", "fields") if name in shown)
