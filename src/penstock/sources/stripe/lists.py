"""The lists of Stripe's API, by the name of their stream: their path, and whether they filter by `created`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: lists that filter by `created`, newest first
BY_CREATED: Mapping[str, str] = {
    "accounts": "accounts",
    "application_fees": "application_fees",
    "balance_transactions": "balance_transactions",
    "charges": "charges",
    "checkout_sessions": "checkout/sessions",
    "coupons": "coupons",
    "credit_notes": "credit_notes",
    "customers": "customers",
    "disputes": "disputes",
    "early_fraud_warnings": "radar/early_fraud_warnings",
    "events": "events",
    "file_links": "file_links",
    "files": "files",
    "invoiceitems": "invoiceitems",
    "invoices": "invoices",
    "payment_intents": "payment_intents",
    "payouts": "payouts",
    "plans": "plans",
    "prices": "prices",
    "products": "products",
    "promotion_codes": "promotion_codes",
    "refunds": "refunds",
    "reviews": "reviews",
    "setup_intents": "setup_intents",
    "shipping_rates": "shipping_rates",
    "subscription_schedules": "subscription_schedules",
    "subscriptions": "subscriptions",
    "tax_rates": "tax_rates",
    "topups": "topups",
    "transfers": "transfers",
}
#: lists whose objects have the time that `created` filters by in another field
TIME_FIELDS: Mapping[str, str] = {"invoiceitems": "date"}
#: lists whose objects may be older than the account: an account can be connected to a younger one
OLDER_THAN_ACCOUNT = frozenset({"accounts"})
#: lists without such a filter: read whole in every run
WHOLE: Mapping[str, str] = {
    "country_specs": "country_specs",
    "payment_links": "payment_links",
    "quotes": "quotes",
    "webhook_endpoints": "webhook_endpoints",
}
LISTS: Mapping[str, str] = {**BY_CREATED, **WHOLE}
#: parameters without which a list leaves objects out
EVERYTHING: Mapping[str, Mapping[str, str]] = {"subscriptions": {"status": "all"}}


@dataclass(frozen=True, slots=True)
class ChildList:
    """A list below the objects of another one."""

    parent: str
    path: str
    #: column with the id of the parent
    column: str
    params: Mapping[str, str] = field(default_factory=dict)


#: lists below the objects of another, which costs a request for each of them: read only where they are named
CHILDREN: Mapping[str, ChildList] = {
    "application_fee_refunds": ChildList("application_fees", "application_fees/{id}/refunds", "fee_id"),
    "checkout_session_line_items": ChildList("checkout_sessions", "checkout/sessions/{id}/line_items", "session_id"),
    "credit_note_lines": ChildList("credit_notes", "credit_notes/{id}/lines", "credit_note_id"),
    "customer_balance_transactions": ChildList("customers", "customers/{id}/balance_transactions", "customer_id"),
    "customer_payment_methods": ChildList("customers", "customers/{id}/payment_methods", "customer_id"),
    "customer_tax_ids": ChildList("customers", "customers/{id}/tax_ids", "customer_id"),
    "invoice_lines": ChildList("invoices", "invoices/{id}/lines", "invoice_id"),
    "payment_link_line_items": ChildList("payment_links", "payment_links/{id}/line_items", "payment_link_id"),
    "quote_line_items": ChildList("quotes", "quotes/{id}/line_items", "quote_id"),
    "subscription_items": ChildList("subscriptions", "subscription_items", "subscription_id", {"subscription": "{id}"}),
    "transfer_reversals": ChildList("transfers", "transfers/{id}/reversals", "transfer_id"),
}


@dataclass(frozen=True, slots=True)
class ListEvents:
    """The events that tell of changes of a list's objects: those whose object is of this type."""

    #: `data.object.object` of the events
    kind: str
    #: the type of the events after which the object is no longer listed; None: its objects are never deleted
    deleted: str | None = None


#: by list, the events of its objects. A canceled subscription (`customer.subscription.deleted`) is still listed.
EVENTS: Mapping[str, ListEvents] = {
    "application_fees": ListEvents("application_fee"),
    "charges": ListEvents("charge"),
    "checkout_sessions": ListEvents("checkout.session"),
    "coupons": ListEvents("coupon", "coupon.deleted"),
    "credit_notes": ListEvents("credit_note"),
    "customers": ListEvents("customer", "customer.deleted"),
    "disputes": ListEvents("dispute"),
    "early_fraud_warnings": ListEvents("radar.early_fraud_warning"),
    "files": ListEvents("file"),
    "invoiceitems": ListEvents("invoiceitem", "invoiceitem.deleted"),
    "invoices": ListEvents("invoice", "invoice.deleted"),
    "payment_intents": ListEvents("payment_intent"),
    "payouts": ListEvents("payout"),
    "plans": ListEvents("plan", "plan.deleted"),
    "prices": ListEvents("price", "price.deleted"),
    "products": ListEvents("product", "product.deleted"),
    "promotion_codes": ListEvents("promotion_code"),
    "refunds": ListEvents("refund"),
    "reviews": ListEvents("review"),
    "setup_intents": ListEvents("setup_intent"),
    "subscription_schedules": ListEvents("subscription_schedule"),
    "subscriptions": ListEvents("subscription"),
    "tax_rates": ListEvents("tax_rate"),
    "topups": ListEvents("topup"),
    "transfers": ListEvents("transfer"),
}
#: lists whose objects have no events, or none that this account gets: their objects are delivered once
WITHOUT_EVENTS = frozenset(BY_CREATED) - frozenset(EVENTS)
