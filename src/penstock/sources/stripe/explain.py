"""What holds for a list to which events are applied."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from penstock.core.sizes import shown_duration
from penstock.ports import Remark
from penstock.sources.stripe.lists import ListEvents


def live_remarks(of_list: Sequence[Remark], events: ListEvents, overlap: int, rescan: timedelta) -> Sequence[Remark]:
    """The remarks of the list, with what events add to them."""
    what = "changes and deletes" if events.deleted else "changes"
    late, again = shown_duration(timedelta(seconds=overlap)), shown_duration(rescan)
    return [
        *of_list,
        Remark("guarantee", f"{what} arrive by Stripe's events; an older version never replaces a newer one"),
        Remark("gap", "in a log, versions may arrive out of order: the highest _changed_at is the newest"),
        Remark("gap", f"an event that is listed more than {late} late is missed"),
        Remark(
            "gap",
            f"after 29 days without a run, events are gone: objects created in the last {again} are read again, and "
            "older changes and deletes are not found",
        ),
        Remark(
            "gap", "an object in an event is written in the API version of the account, which may not be `api_version`"
        ),
    ]
