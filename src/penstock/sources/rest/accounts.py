"""A rest source that stops if its credentials belong to another account than before.

The mark keeps the account. It is asked for once in a run, and compared before anything is read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from penstock.core.content import Content
from penstock.core.documents import Document
from penstock.core.marks import Mark
from penstock.core.subdivision import Span
from penstock.errors import ConnectionFailed, StreamFailed, StreamRefused
from penstock.links.http.failures import Answer, Malformed, RequestRefused, ResourceRefused
from penstock.ports import Budget, Planned, Remark, Spool
from penstock.sources.rest.changing import ChangingSource
from penstock.sources.rest.content import ListContent
from penstock.sources.rest.cutting import look_up

#: the mark's field
FIELD = "account"
CORRECT = "correct `path` and `field` under `account` of the source"


class AccountSource(ChangingSource):
    """Lists of one API and one account."""

    #: the account of the credentials; None: it was not asked for yet
    _found: str | None = None

    def plan(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget
    ) -> Planned | None:
        bare, known = split_mark(after)
        self._check_account(stream, known)
        return super().plan(stream, content, bare, ceiling, budget)

    def gather(
        self, stream: str, content: Content, after: Mark | None, ceiling: Document, budget: Budget, spool: Spool
    ) -> Planned | None:
        bare, known = split_mark(after)
        account = self._check_account(stream, known)
        planned = super().gather(stream, content, bare, ceiling, budget, spool)
        if planned is None or account is None:
            return planned
        return replace(planned, upto=Mark.of({**planned.upto.document, FIELD: account}))

    def _compared_spans(self, stream: str, content: ListContent, mark: Mark) -> Sequence[Span]:
        """Only of the same account."""
        self._check_account(stream, split_mark(mark)[1])
        return super()._compared_spans(stream, content, mark)

    def explain(self, stream: str, content: Content) -> Sequence[Remark]:
        said = super().explain(stream, content)
        if self._options.account is not None:
            text = "the stream stops if the credentials belong to another account than before"
            return [*said, Remark("guarantee", text)]
        if self._options.auth is None and not self._options.headers:
            return said
        return [
            *said,
            Remark("gap", "another account behind the same credentials is not noticed: its objects are added"),
            Remark("advice", "set `account` of the source, if the API says which account asks"),
        ]

    def close(self) -> None:
        super().close()
        self._found = None

    def _check_account(self, stream: str, known: str | None) -> str | None:
        """The account to keep in the mark; StreamRefused if it is not the known one."""
        if self._options.account is None:
            return known
        found = self._ask_account(stream)
        if known is not None and known != found:
            raise StreamRefused(
                f"the mark was made with account {known}, and the credentials now belong to account {found}",
                next_step=f"restore the credentials of {known}; or give {found} a pipeline of its own",
                stream=stream,
            )
        return found

    def _ask_account(self, stream: str) -> str:
        options = self._options.account
        assert options is not None
        if self._found is None:

            def read(answer: Answer) -> str:
                try:
                    value = look_up(json.loads(answer.body), options.field)
                except ValueError as error:
                    raise Malformed(str(error)[:100]) from None
                if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
                    problem = "missing" if value is None else repr(value)[:50]
                    what = f"GET {options.path}: field {options.field}, which names the account, is {problem}"
                    raise StreamFailed(what, next_step=CORRECT, stream=stream)
                return str(value)

            try:
                self._found = self._loop.run(self._account.fetch(options.path, {}, read, stream=stream))
            except (RequestRefused, ResourceRefused) as refused:
                what = f"the account of the credentials cannot be read: {refused.what}"
                raise StreamFailed(what, next_step=CORRECT, stream=stream) from None
            except ConnectionFailed as failed:
                raise failed.at(pipeline=self._context.pipeline) from None
        return self._found


def split_mark(mark: Mark | None) -> tuple[Mark | None, str | None]:
    """A mark without the account, and the account that it was made with."""
    if mark is None or FIELD not in mark.document:
        return mark, None
    document = dict(mark.document)
    account = document.pop(FIELD)
    return Mark.of(document), str(account)
