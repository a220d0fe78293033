"""The stripe preset: its lists against the project's own list API, its headers, its rate limit."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from pyiceberg.catalog.sql import SqlCatalog
from tests.docs.pages import TOP, blocks
from tests.harness.faults import Command
from tests.harness.rest_server import RestServer

from penstock.errors import StreamRefused
from penstock.sources import stripe
from penstock.sources.stripe.lists import BY_CREATED, EVENTS, LISTS, WITHOUT_EVENTS
from penstock.sources.stripe.options import Options, StreamOptions


@pytest.mark.parametrize(("key", "rate"), [("sk_live_1", 20), ("rk_live_1", 20), ("sk_test_1", 10)])
def test_the_rate_limit_is_that_of_the_keys_mode(key: str, rate: float) -> None:
    assert stripe.account_options(Options(api_key=key)).rate_limit == rate  # type: ignore[arg-type]  # as in a file
    given = Options(api_key=key, rate_limit=3)  # type: ignore[arg-type]  # as in a file
    assert stripe.account_options(given).rate_limit == 3


def test_the_version_and_the_account_are_sent_and_the_key_is_not_shown() -> None:
    options = Options(api_key="sk_live_1", account="acct_1")  # type: ignore[arg-type]  # as in a file
    account = stripe.account_options(options)
    assert account.headers == {"Stripe-Version": "2024-06-20", "Stripe-Account": "acct_1"}
    assert "sk_live_1" not in f"{options!r} {account!r}"


def test_every_list_is_a_stream_of_a_rest_source() -> None:
    for name in LISTS:
        options = stripe.stream_options(name, StreamOptions())
        assert (options.time is not None) == (name in BY_CREATED)
        if options.time is not None:
            assert options.time.field == ("date" if name == "invoiceitems" else "created")
    with pytest.raises(StreamRefused, match="did you mean 'charges'"):
        stripe.stream_options("charge", StreamOptions())
    assert stripe.stream_options("mine", StreamOptions(list="charges")).path == "charges"


def test_several_accounts_in_one_file(tmp_path: Path) -> None:
    """Each has its own key, account and marks; a failing one does not stop the other."""
    _, block = blocks(TOP / "docs" / "sources" / "stripe.md", "yaml")
    example = TOP / "examples" / "stripe-accounts.yaml"
    assert yaml.safe_load(block.text) == yaml.safe_load(example.read_text())
    text = example.read_text().replace("{type: stripe, ", '{type: stripe, base_url: "${API}/v1", ')
    (tmp_path / "stripe.yaml").write_text(text)
    with RestServer({"charges": {}, "customers": {}}, token="sk_live_eu") as server:
        server.arrive("charges", 120)
        server.arrive("customers", 10)
        server.set_clock(server.now + 60)
        keys = {"API": server.url, "STRIPE_KEY_EU": "sk_live_eu", "STRIPE_KEY_US": "sk_live_us"}
        command = Command(tmp_path, "loop", keys)
        assert command.run("check", "stripe.yaml", "stripe_eu").code == 0
        done = command.run("run", "stripe.yaml")
        assert done.code == 3, done.out
        assert "stripe_us: the API does not accept the credentials" in done.err
        server.set_faults(token="sk_live_us")
        server.set_account({"id": "acct_2", "object": "account", "created": server.now - 10_000_000})
        done = command.run("run", "stripe.yaml", "stripe_us")
        assert done.code == 0, done.err
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/lake/catalog.db")
    try:
        for name in ("stripe_eu", "stripe_us"):
            assert catalog.load_table(f"{name}.charges").scan().to_arrow().num_rows == 120
            assert catalog.load_table(f"{name}.customers").scan().to_arrow().num_rows == 10
    finally:
        catalog.close()


def test_the_file_of_the_page(tmp_path: Path) -> None:
    block, _ = blocks(TOP / "docs" / "sources" / "stripe.md", "yaml")
    text = block.text.replace('api_key: "', 'base_url: "${API}/v1", api_key: "')
    (tmp_path / "stripe.yaml").write_text(text)
    with RestServer({name: {} for name in ("charges", "customers", "payment_links")}, token="sk_test_key") as server:
        server.change("customers", status=403)
        server.arrive("charges", 150)
        server.arrive("payment_links", 3)
        server.set_clock(server.now + 60)
        command = Command(tmp_path, "loop", {"API": server.url, "STRIPE_API_KEY": "sk_test_key"})
        done = command.run("run", "stripe.yaml", "--json")
        assert done.code == 0, done.err
        assert done.messages[-1]["request_progress"]["rows"] == 153
        skipped = {each["stream"]: each["skipped"] for each in done.messages[0]["streams"] if each["skipped"]}
        assert list(skipped) == ["customers"]
        assert {each["query"].get("created[lt]") for each in server.requests("payment_links")} == {None}


def test_a_list_below_another_needs_the_stream_of_its_parents(tmp_path: Path) -> None:
    (tmp_path / "stripe.yaml").write_text(
        "store: store.db\n"
        "pipelines:\n"
        "  stripe:\n"
        "    source: {type: stripe, base_url: '${API}/v1', api_key: sk_test_key}\n"
        "    sink: {type: files, directory: out, format: ndjson}\n"
        "    streams: {buyers: {list: customers}, customer_tax_ids: {}}\n"
    )
    with RestServer({"customers": {}}) as server:
        server.arrive("customers", 3)
        server.make("customers/cu_00000001/tax_ids", 2)
        server.set_clock(server.now + 60)
        command = Command(tmp_path, "loop", {"API": server.url})
        done = command.run("run", "stripe.yaml")
        assert done.code == 0, done.err
        (path,) = (tmp_path / "out" / "customer_tax_ids" / "current").iterdir()
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert [(row["customer_id"], row["id"][:2]) for row in rows] == [("cu_00000001", "cu")] * 2
        text = (tmp_path / "stripe.yaml").read_text()
        (tmp_path / "stripe.yaml").write_text(text.replace("buyers: {list: customers}, ", ""))
        done = command.run("check", "stripe.yaml")
        assert done.code == 2
        assert "is read for each object of customers, which is not a stream of this pipeline" in done.out + done.err


def test_an_account_bounds_the_time_and_cannot_be_swapped(tmp_path: Path) -> None:
    (tmp_path / "stripe.yaml").write_text(
        "store: store.db\n"
        "pipelines:\n"
        "  stripe:\n"
        "    source: {type: stripe, base_url: '${API}/v1', api_key: sk_test_key}\n"
        "    sink: {type: files, directory: out}\n"
        "    streams: {charges: {}, accounts: {}, refunds: {time_range: {from: 2001-01-01}}}\n"
    )
    with RestServer({"charges": {}, "accounts": {}, "refunds": {}}) as server:
        created = server.now - 86400
        command = Command(tmp_path, "loop", {"API": server.url})

        def run(code: int = 0) -> str:
            for name in ("charges", "accounts", "refunds"):
                server.arrive(name, 3)
            server.set_clock(server.now + 60)
            done = command.run("run", "stripe.yaml", "--json")
            assert done.code == code, done.err
            return "\n".join(map(str, done.messages)) + done.err

        run()
        bounds = {each["query"].get("created[gte]") for each in server.requests("charges")}
        assert str(created) in bounds
        # A connected account may be older; a bound of the file is not replaced.
        assert {each["query"].get("created[gte]") for each in server.requests("accounts")} <= {None, "0"}
        assert str(created) not in {each["query"].get("created[gte]") for each in server.requests("refunds")}
        assert len(server.requests("account")) == 1
        server.set_account({"id": "acct_2", "created": created})
        assert "made with account acct_1, and the key now belongs to account acct_2" in run(code=2)
        # A key that may not read its account goes on, and says what it cannot notice. The mark keeps the account.
        server.set_account(None)
        assert "a swapped account is not noticed" in run()
        server.set_account({"id": "acct_2", "created": created})
        assert "made with account acct_1, and the key now belongs to account acct_2" in run(code=2)
        server.set_account({"id": "acct_1", "created": created})
        run()
        # Nothing new: one request for each stream, none for the account, and the account's creation still counts.
        server.forget_requests()
        assert "nothing new" in command.run("run", "stripe.yaml").out
        assert sorted(each["path"] for each in server.requests()) == ["/v1/accounts", "/v1/charges", "/v1/refunds"]


def test_the_page_lists_the_events_of_every_list() -> None:
    text = (TOP / "docs" / "sources" / "stripe.md").read_text()
    for name, events in EVENTS.items():
        deleted = f"`{events.deleted}`" if events.deleted else ""
        assert f"| `{name}` | `{events.kind}` | {deleted} |" in text
    (sentence,) = [line for line in text.splitlines() if "have no events" in line]
    assert {*re.findall(r"`(\w+)`", sentence)} == WITHOUT_EVENTS
