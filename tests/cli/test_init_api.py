"""`penstock init` for lists of an API and for Stripe: the file is accepted as it is, and delivers every object."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.harness.faults import Command, Outcome
from tests.harness.rest_server import RestServer

from penstock.sources.stripe.lists import LISTS

TOKEN = {"API_TOKEN": "sk_live_secret"}


def command(folder: Path, *, has_stripe_key: bool = False) -> Command:
    return _command(folder, has_stripe_key)


@cache
def _command(folder: Path, has_stripe_key: bool) -> Command:
    return Command(folder, "loop", TOKEN | ({"STRIPE_API_KEY": "sk_live_secret"} if has_stripe_key else {}))


def init(server: RestServer, folder: Path, *words: str, code: int = 0) -> Outcome:
    done = command(folder).run("init", f"{server.url}/v1", *words)
    assert done.code == code, done.out + done.err
    assert "sk_live_secret" not in done.out + done.err
    return done


def read_file(folder: Path) -> dict[str, Any]:
    (pipeline,) = yaml.safe_load((folder / "penstock.yaml").read_text())["pipelines"].values()
    found: dict[str, Any] = pipeline
    return found


def run(folder: Path, *, has_stripe_key: bool = False) -> None:
    for verb in ("check", "run"):
        done = command(folder, has_stripe_key=has_stripe_key).run(verb, "penstock.yaml")
        assert done.code == 0, done.out + done.err


def ids(folder: Path, stream: str) -> list[str]:
    paths = sorted((folder / "out" / stream).rglob("*.parquet"))
    import pyarrow.parquet as pq

    return [id_ for path in paths for id_ in pq.read_table(path).column("id").to_pylist()]


WAYS: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({}, {}, {"field": "created", "unit": "seconds", "since": "created[gte]", "before": "created[lt]"}),
    (
        {"paging": "token", "unit": "iso", "time_field": "created_at", "since": "since", "before": "before"},
        {"by": "token"},
        {"field": "created_at", "unit": "iso", "since": "since", "before": "before"},
    ),
    (
        {"paging": "link", "unit": "milliseconds", "since": "created_gte", "before": "created_lt", "order": "oldest"},
        {"by": "link"},
        {"field": "created", "unit": "milliseconds", "since": "created_gte", "before": "created_lt"},
    ),
    (
        {"paging": "next_url", "most": 30},
        {"by": "next_url", "size": 30},
        {"field": "created", "unit": "seconds", "since": "created[gte]", "before": "created[lt]"},
    ),
]


@pytest.mark.parametrize(("endpoint", "paging", "time"), WAYS, ids=["last_id", "token", "link", "next_url"])
def test_what_is_proposed_was_tried_and_is_accepted(
    endpoint: dict[str, Any], paging: dict[str, Any], time: dict[str, Any], tmp_path: Path
) -> None:
    with RestServer({"charges": endpoint}, token="sk_live_secret") as server:
        server.arrive("charges", 250)
        done = init(server, tmp_path, "--path", "charges", "--auth", "bearer=API_TOKEN")
        assert "1 stream, 1 new objects only." in done.out
        text = (tmp_path / "penstock.yaml").read_text()
        assert 'auth: {bearer: "${API_TOKEN}"}' in text
        assert "sk_live_secret" not in text
        charges = read_file(tmp_path)["streams"]["charges"]
        assert charges.get("time") == time
        assert paging.items() <= charges.get("paging", {}).items()
        assert charges["columns"] == {"object": "string", "amount": "int64", "currency": "string", "livemode": "bool"}
        assert "only in column json: objects and lists: 'metadata'" in text
        assert "(tried)" in text
        assert len(server.requests()) <= 40
        server.set_clock(server.now + 60)
        run(tmp_path)
        assert sorted(ids(tmp_path, "charges")) == sorted(id_ for id_, _ in server.objects("charges"))


@pytest.mark.parametrize("paging", ["page", "offset"])
def test_a_filter_that_is_ignored_is_not_proposed(paging: str, tmp_path: Path) -> None:
    with RestServer({"charges": {"ignores_filter": True, "paging": paging, "most": 40}}) as server:
        server.arrive("charges", 250)
        init(server, tmp_path, "--path", "charges")
        charges = read_file(tmp_path)["streams"]["charges"]
        assert "time" not in charges
        assert charges["paging"] == {"by": paging, "size": 40}
        text = (tmp_path / "penstock.yaml").read_text()
        assert "no filter by time was found: read whole in every run" in text
        assert "field created has times: if the API filters by it, set `time`" in text
        run(tmp_path)
        found = ids(tmp_path, "charges/current")
        assert sorted(found) == sorted(id_ for id_, _ in server.objects("charges"))


def test_a_list_below_another_and_one_that_may_not_be_read(tmp_path: Path) -> None:
    with RestServer({"customers": {}, "secrets": {"status": 403}}) as server:
        server.arrive("customers", 20)
        parent = server.objects("customers")[-4][0]
        server.make(f"customers/{parent}/cards", 7)
        done = init(
            server,
            tmp_path,
            "--path",
            "customers",
            "--path",
            "customers/{id}/cards",
            "--path",
            "secrets",
            "--sink",
            "lake",
        )
        assert "2 streams, 1 new objects only, 1 full refresh in every run; 1 left out." in done.out
        streams = read_file(tmp_path)["streams"]
        assert streams["customers_cards"] == {
            "path": "customers/{id}/cards",
            "parent": "customers",
            "columns": {
                "object": "string",
                "amount": "int64",
                "created": "timestamptz",
                "currency": "string",
                "livemode": "bool",
            },
        }
        assert "Not synced:" in (tmp_path / "penstock.yaml").read_text()
        assert "status 403" in (tmp_path / "penstock.yaml").read_text()
        run(tmp_path)


def test_an_empty_list_is_proposed_without_columns(tmp_path: Path) -> None:
    with RestServer({"charges": {}}) as server:
        init(server, tmp_path, "--path", "charges")
        assert read_file(tmp_path)["streams"] == {"charges": {}}
        assert "the list is empty" in (tmp_path / "penstock.yaml").read_text()
        run(tmp_path)


def test_stripe_has_all_lists_that_the_key_may_read(tmp_path: Path) -> None:
    readable = ("charges", "customers", "payment_links")
    with RestServer({path: {} for path in readable}, token="sk_live_secret") as server:
        for name in readable:
            server.arrive(name, 5)
        stripe = command(tmp_path, has_stripe_key=True)
        done = stripe.run("init", f"{server.url}/v1", "--source", "stripe")
        assert done.code == 0, done.out + done.err
        left = len(LISTS) - 3
        assert f"3 streams, 2 new objects only, 1 full refresh in every run; {left} left out." in done.out
        pipeline = read_file(tmp_path)
        assert pipeline["source"] == {
            "type": "stripe",
            "api_key": "${STRIPE_API_KEY}",
            "base_url": f"{server.url}/v1",
        }
        assert set(pipeline["streams"]) == set(readable)
        assert pipeline["streams"]["charges"]["columns"]["amount"] == "int64"
        server.set_clock(server.now + 60)
        run(tmp_path, has_stripe_key=True)
        assert len(ids(tmp_path, "charges")) == 5
        server.make("refunds", 3)
        done = stripe.run("init", "--add", "--include", "ref*")
        assert "Added 1 stream to penstock.yaml: refunds." in done.out
        found = stripe.run("discover", "penstock.yaml", "--json")
        assert found.code == 0, found.err
        assert json.loads(found.out)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["http://localhost:1/v1"], "there is no path of a list"),
        (["--path", "charges"], "there is no address of the API"),
        (["--source", "stripe"], "the environment variable STRIPE_API_KEY is not set"),
        (["--source", "stripe", "--path", "charges"], "--path cannot be used with --source stripe"),
        (["--source", "stripe", "--auth", "basic=X"], "Stripe takes one key"),
        (["--source", "postgrs"], "there is no source type 'postgrs'; did you mean 'postgres'?"),
        (["postgresql://localhost/x", "--auth", "bearer=API_TOKEN"], "--auth is for an API"),
        (["http://localhost:1/v1", "--path", "a", "--auth", "token=API_TOKEN"], "is none of bearer=NAME"),
        (["http://localhost:1/v1", "--path", "a", "--auth", "header=API_TOKEN"], "is none of bearer=NAME"),
        (["http://localhost:1/v1", "--path", "a", "--auth", "bearer=NOWHERE"], "variable NOWHERE is not set"),
        (["http://localhost:1/v1", "--path", "a", "--auth", "bearer=$x"], "'$x' is not a valid name"),
        (["http://localhost:1/v1", "--path", "a/{id}/b"], "the ids for a/{id}/b come from a list that is not named"),
        (["http://localhost:1/v1", "--path", "a-b", "--path", "a_b"], "two paths would give streams of the same name"),
        (["http://localhost:1/v1", "--path", "/"], "names no list"),
        (["http://ann:secret@localhost:1/v1", "--path", "a"], "must contain neither credentials nor a query"),
    ],
)
def test_what_is_refused(words: list[str], said: str, tmp_path: Path) -> None:
    done = command(tmp_path).run("init", *words)
    assert done.code == 2
    assert said in done.err
    assert not (tmp_path / "penstock.yaml").exists()


def test_wrong_credentials_fail_the_connection(tmp_path: Path) -> None:
    with RestServer({"charges": {}}, token="another") as server:
        done = init(server, tmp_path, "--path", "charges", "--auth", "bearer=API_TOKEN", code=3)
        assert "does not accept the credentials" in done.err
