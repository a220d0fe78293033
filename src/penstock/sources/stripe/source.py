"""The stripe source: a rest source that knows which account its key belongs to, and when the account was created."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from penstock.core.content import Content
from penstock.core.documents import Document
from penstock.core.marks import Position
from penstock.core.subdivision import Span
from penstock.errors import ConnectionFailed, StreamFailed, StreamRefused
from penstock.links.http.failures import Answer, Malformed, ResourceRefused
from penstock.sources.rest import RestSource
from penstock.sources.rest.times import Unit
from penstock.sources.stripe.lists import OLDER_THAN_ACCOUNT


@dataclass(frozen=True, slots=True)
class StripeAccount:
    """The account that a key belongs to."""

    id: str
    #: seconds since 1970; None: Stripe does not say
    created: int | None


class StripeSource(RestSource):
    """Lists of one Stripe account. The account is asked for once in a run."""

    _has_asked = False
    _found: StripeAccount | None = None

    def content(self, stream: str) -> Content:
        content = super().content(stream)
        account = self._stripe_account(stream)
        if account is None:
            return content
        return replace(content, identity={**content.identity, "account": account.id})

    def accept(self, stream: str, last: Position, content: Content) -> None:
        super().accept(stream, last, content)
        if last.mark is None:
            return
        before, now = Content.parse(last.content).identity.get("account"), content.identity.get("account")
        if before and now and before != now:
            raise StreamRefused(
                f"the mark was made with account {before}, and the key now belongs to account {now}",
                next_step=f"restore the key of {before}; or give {now} a pipeline of its own",
                stream=stream,
            )

    def _window(self, stream: str, unit: Unit, ceiling: Document) -> Span | None:
        """The range of time to read: from the creation of the account on, unless the file has a bound of its own."""
        window = super()._window(stream, unit, ceiling)
        if window is None or window.gte or stream in OLDER_THAN_ACCOUNT:
            return window
        account = self._stripe_account(stream)
        if account is None or account.created is None:
            return window
        low = unit.of(datetime.fromtimestamp(account.created, UTC))
        return replace(window, gte=low) if window.lt is None or low < window.lt else None

    def _stripe_account(self, stream: str) -> StripeAccount | None:
        """The account; None: the key may not read it."""
        if not self._has_asked:
            try:
                self._found = self._loop.run(self._account.fetch("account", {}, read_account, stream=stream))
            except ResourceRefused:
                self._context.say(stream, "the key may not read its account: a swapped account is not noticed")
            except ConnectionFailed as failed:
                raise failed.at(pipeline=self._context.pipeline) from None
            self._has_asked = True
        return self._found

    def close(self) -> None:
        super().close()
        self._has_asked, self._found = False, None


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
