"""The stripe source: a rest source that knows which account its key belongs to, and when the account was created.

The mark keeps the account. It is asked for again before something is delivered, never to find that nothing is new.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime

from penstock.core.content import Content
from penstock.core.documents import Document
from penstock.core.marks import Mark
from penstock.core.subdivision import Span
from penstock.core.subdivision.spans import intersect
from penstock.errors import ConnectionFailed, StreamFailed, StreamRefused
from penstock.links.http.failures import Answer, Malformed, ResourceRefused
from penstock.ports import Budget, DiscoveredStream, Planned, Spool, not_comparable
from penstock.sources.rest.content import ListContent
from penstock.sources.rest.times import Unit
from penstock.sources.stripe.feed import KEPT_SECONDS, MARGIN_SECONDS
from penstock.sources.stripe.lists import LISTS, OLDER_THAN_ACCOUNT
from penstock.sources.stripe.live import LiveSource
from penstock.sources.stripe.options import StreamOptions


@dataclass(frozen=True, slots=True)
class StripeAccount:
    """The account that a key belongs to."""

    id: str
    #: seconds since 1970; None: Stripe does not say
    created: int | None


class StripeSource(LiveSource):
    """Lists of one Stripe account. The account is asked for at most once in a run."""

    _has_asked = False
    _found: StripeAccount | None = None
    #: the account in the mark of the stream that is planned or gathered now
    _marked: StripeAccount | None = None

    def plan(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget
    ) -> Planned | None:
        bare, self._marked = split_mark(after)
        return super().plan(stream, content, bare, ceiling, budget)

    def gather(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget, spool: Spool
    ) -> Planned | None:
        bare, self._marked = split_mark(after)
        # A key that may not read its account keeps what is known: a later key is compared with it.
        account = self._check_account(stream, self._marked) or self._marked
        planned = super().gather(stream, content, bare, ceiling, budget, spool)
        if planned is None or account is None:
            return planned
        return replace(planned, upto=Mark.of({**planned.upto.document, "account": asdict(account)}))

    def _window(self, stream: str, unit: Unit, ceiling: Document) -> Span | None:
        """The range of time to read: from the creation of the account on, unless the file has a bound of its own."""
        window = super()._window(stream, unit, ceiling)
        if window is None or window.gte or stream in OLDER_THAN_ACCOUNT:
            return window
        account = self._found or self._marked
        if account is None or account.created is None:
            return window
        low = unit.of(datetime.fromtimestamp(account.created, UTC))
        return replace(window, gte=low) if window.lt is None or low < window.lt else None

    def _compared_spans(self, stream: str, content: ListContent, mark: Mark) -> Sequence[Span]:
        """Only of the same account; and of events only those that Stripe still lists."""
        self._check_account(stream, split_mark(mark)[1])
        spans = super()._compared_spans(stream, content, mark)
        if content.path != LISTS["events"]:
            return spans
        page = self._look(stream).page
        now = (page.date if page else None) or datetime.now(UTC)
        kept = Span(int(now.timestamp()) - KEPT_SECONDS + MARGIN_SECONDS, None)
        listed = [found for span in spans if (found := intersect(span, kept)) is not None]
        if not listed:
            raise not_comparable(stream, "Stripe no longer lists the events that were read", "penstock run FILE")
        return listed

    def _check_account(self, stream: str, known: StripeAccount | None) -> StripeAccount | None:
        """The account of the key; None: the key may not read it. StreamRefused if it is not the known one."""
        account = self._ask_account(stream)
        if known and account and known.id != account.id:
            raise StreamRefused(
                f"the mark was made with account {known.id}, and the key now belongs to account {account.id}",
                next_step=f"restore the key of {known.id}; or give {account.id} a pipeline of its own",
                stream=stream,
            )
        return account

    def _ask_account(self, stream: str) -> StripeAccount | None:
        if not self._has_asked:
            try:
                self._found = self._loop.run(self._account.fetch("account", {}, read_account, stream=stream))
            except ResourceRefused:
                self._context.say(stream, "the key may not read its account: a swapped account is not noticed")
            except ConnectionFailed as failed:
                raise failed.at(pipeline=self._context.pipeline) from None
            self._has_asked = True
        return self._found

    def discover(self) -> Sequence[DiscoveredStream]:
        """Every list of Stripe, with columns from its newest objects."""
        from penstock.sources.rest.sampling import ListProposal
        from penstock.sources.stripe.presets import stream_options

        readers = {(each.path or name): name for name, each in self._streams.items()}
        found = []
        for name, path in LISTS.items():
            proposal = ListProposal(
                self._account, name, stream_options(name, StreamOptions()), self._options, is_preset=True
            )
            found.append(replace(self._loop.run(proposal.discover()), read_by=readers.get(path)))
        return found

    def close(self) -> None:
        super().close()
        self._has_asked, self._found, self._marked = False, None, None


def split_mark(mark: Mark | None) -> tuple[Mark | None, StripeAccount | None]:
    """A mark as the rest source wrote it, and the account that it was made with."""
    if mark is None or "account" not in mark.document:
        return mark, None
    document = dict(mark.document)
    account = document.pop("account")
    return Mark.of(document), StripeAccount(account["id"], account["created"])


def read_account(answer: Answer) -> StripeAccount:
    """The account in an answer; Malformed if it is no JSON, StreamFailed if it has no id."""
    try:
        document = json.loads(answer.body)
    except ValueError as error:
        raise Malformed(str(error)[:100]) from None
    id_, created = (document.get("id"), document.get("created")) if isinstance(document, dict) else (None, None)
    if not isinstance(id_, str) or not id_:
        raise StreamFailed("GET account: field id is missing", next_step="correct `base_url` of the source")
    return StripeAccount(id_, created if isinstance(created, int) else None)
