"""Lists of an API through the real command: what a run costs, what a changed range fetches, what fails."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.rest_shop import RestShop
from tests.harness.faults import Outcome

RANGE = "{{time: {{lag: 0}}, time_range: {{from: '{0}', to: '{1}'}}}}"


def statuses(done: Outcome) -> dict[str, str]:
    """The last status of each stream."""
    return {each["stream"]: each["status"] for each in done.messages if each["type"] == "stream_status"}


def run(shop: RestShop, *words: str) -> Outcome:
    done = shop.command.run("run", "shop.yaml", *words)
    assert done.code == 0, done.err
    return done


def asked(shop: RestShop) -> list[dict[str, Any]]:
    """The queries of list requests since the last time, without those that only look."""
    found = [each["query"] for each in shop.server.requests() if each["query"].get("limit") != "1"]
    shop.server.forget_requests()
    return found


# ---------------------------------------------------------------- what a run costs


def test_a_thousand_new_objects_cost_twelve_requests_and_nothing_new_one(tmp_path: Path) -> None:
    with RestShop.open(tmp_path) as shop:
        shop.write(slice_bytes=1 << 24)
        shop.server.arrive("charges", 5000)
        run(shop)
        shop.server.forget_requests()
        shop.server.arrive("charges", 1000)
        run(shop)
        assert len(shop.server.requests()) <= 12
        assert shop.differences() == {}
        shop.server.forget_requests()
        assert "nothing new" in run(shop).out
        assert len(shop.server.requests()) == 1


def test_nothing_new_costs_one_request_for_each_stream(tmp_path: Path) -> None:
    names = ["charges", "refunds", "payouts", "disputes"]
    with RestShop.open(tmp_path, {name: {} for name in names}) as shop:
        shop.write(dict.fromkeys(names, "{time: {lag: 0}}"))
        for name in names[:3]:  # the fourth list is empty
            shop.server.arrive(name, 50)
        run(shop)
        shop.server.forget_requests()
        shop.command.mover = "spark"
        done = run(shop, "--json")
        assert [each for each in done.messages if each["type"] == "mover_status"] == []
        assert sorted(each["path"] for each in shop.server.requests()) == sorted(f"/v1/{name}" for name in names)


@pytest.mark.parametrize(
    ("options", "requests"),
    [
        ("{time: {lag: 0}, order: oldest}", 2),
        ("{incremental: true, order: oldest}", 1),
        ("{incremental: true, order: oldest, paging: {by: token}}", 1),
    ],
)
def test_nothing_new_costs_as_many_requests_as_documented(options: str, requests: int, tmp_path: Path) -> None:
    paging = "token" if "token" in options else "last_id"
    with RestShop.open(tmp_path, {"charges": {"order": "oldest", "paging": paging}}) as shop:
        shop.write({"charges": options})
        shop.server.arrive("charges", 250)
        run(shop)
        shop.server.set_clock(shop.server.now + 60)
        shop.server.forget_requests()
        assert "nothing new" in run(shop).out
        assert len(shop.server.requests()) == requests
        assert shop.differences() == {}


def test_a_stream_that_always_fails_does_not_hold_up_the_others(tmp_path: Path) -> None:
    """It is listed first, and tried again for seconds. The others are read and delivered meanwhile."""
    names = ["broken", "charges", "refunds", "payouts"]
    with RestShop.open(tmp_path, {name: {} for name in names}) as shop:
        for name in names:
            shop.server.arrive(name, 500)
        shop.server.change("broken", status=500)
        shop.write(dict.fromkeys(names, "{time: {lag: 0}}"), slice_bytes=1 << 24)
        file = shop.folder / "shop.yaml"
        file.write_text(file.read_text().replace("retries: 2, retry_seconds: 0.01", "retries: 2, retry_seconds: 4"))
        done = shop.command.run("run", "shop.yaml", "--json")
        assert done.code == 1, done.err
        assert {name: shop.differences(name) for name in names[1:]} == {name: {} for name in names[1:]}
        ends = [
            (each["stream"], each["status"])
            for each in done.messages
            if each["type"] == "stream_status" and each["status"] in ("complete", "error")
        ]
        assert sorted(ends[:-1]) == sorted((name, "complete") for name in names[1:])
        assert ends[-1] == ("broken", "error")
        others = [each for each in shop.server.requests() if each["path"] != "/v1/broken"]
        tried = [each["at"] for each in shop.server.requests("broken")]
        assert len(tried) == 3
        # All were looked at in the beginning, and everything was fetched before the last try.
        assert len({each["path"] for each in others if each["at"] < tried[0] + 1}) == 3
        assert max(each["at"] for each in others) < tried[-1]


@pytest.mark.parametrize("below", [False, True])
def test_a_time_limit_ends_a_list_that_is_read_whole_and_the_next_run_begins_it_again(
    below: bool, tmp_path: Path
) -> None:
    """In part it would take the place of the whole list. The other streams are delivered."""
    name = "cards" if below else "countries"
    with RestShop.open(tmp_path, {"countries": {}, "charges": {}, "customers": {}}) as shop:
        cards = "{parent: customers, path: 'customers/{id}/cards'}"
        streams = {"customers": "{time: {lag: 0}}", "cards": cards} if below else {"countries": "{}"}
        shop.write(streams | {"charges": "{time: {lag: 0}}"}, slice_bytes=1 << 24)
        for each, count in (("countries", 5000), ("charges", 300), ("customers", 300)):
            shop.server.arrive(each, count)
        run(shop)
        before = shop.rows(name)
        shop.server.arrive("charges", 300)
        shop.server.set_faults(latency=0.8)
        done = run(shop, "--time-limit", "8s", "--json")
        eof = done.messages[-1]
        assert (eof["status"], eof["has_more"], eof["reason"]) == ("limited", True, "stopped at time_limit 8 s")
        warnings = [each for each in done.messages if each["type"] == "log" and each["level"] == "warning"]
        assert [each["stream"] for each in warnings] == [name]
        assert "the run's time was over" in warnings[0]["text"]
        assert "--time-limit" in warnings[0]["text"]
        assert statuses(done)[name] != "complete"
        assert shop.rows(name) == before
        shop.server.set_faults()
        run(shop)
        assert shop.differences("charges") == {}


def test_a_time_limit_ends_a_long_fetch_and_what_was_fetched_is_delivered(tmp_path: Path) -> None:
    with RestShop.open(tmp_path, latency=0.3) as shop:
        shop.write(slice_bytes=1 << 26)
        shop.server.arrive("charges", 20_000)
        for seconds in (3, 6, 12):
            done = run(shop, "--time-limit", f"{seconds}s", "--json")
            eof = done.messages[-1]
            reason = f"stopped at time_limit {seconds} s"
            assert (eof["status"], eof["has_more"], eof["reason"]) == ("limited", True, reason)
            if eof["request_progress"]["rows"]:
                break  # a busy machine may take three seconds to start
        assert 0 < eof["request_progress"]["rows"] == len(shop.rows()) < 20_000
        fetched = [each["fetched"] for each in done.messages if each["type"] == "work"]
        assert fetched[-1]["records"] == len(shop.rows())
        shop.server.set_faults()
        assert "records fetched" in run(shop, "--plain").out
        assert shop.differences() == {}


def test_nothing_new_starts_no_spark(tmp_path: Path) -> None:
    """Without the loop that stands in for Spark: a JVM would be started if there were something to move."""
    with RestShop.open(tmp_path) as shop:
        shop.write()
        shop.server.arrive("charges", 100)
        run(shop)
        shop.command.mover = "spark"
        done = run(shop, "--json")
        assert [each for each in done.messages if each["type"] == "mover_status"] == []
        assert done.messages[-1]["request_progress"]["rows"] == 0


def test_other_commands_do_not_import_an_http_client() -> None:
    import subprocess

    code = "import sys; from penstock import wiring, sources; sources.load('rest'); print('httpx' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "False\n"


# ---------------------------------------------------------------- a range that changes


def test_a_changed_time_range_fetches_exactly_the_difference(tmp_path: Path) -> None:
    with RestShop.open(tmp_path) as shop:
        # Ten objects in each second, from 00:00:00 on.
        shop.server.arrive("charges", 10_000, in_a_second=10)
        first = shop.server.objects("charges")[0][1]

        def configure(start: str, end: str) -> None:
            shop.write({"charges": RANGE.format(f"2026-01-01T00:{start}", f"2026-01-01T00:{end}")}, slice_bytes=1 << 24)

        configure("04:00", "06:00")
        run(shop)
        assert len(shop.rows()) == 1200
        asked(shop)
        configure("02:00", "06:00")
        run(shop)
        assert len(shop.rows()) == 2400
        bounds = [(int(query["created[gte]"]) - first, int(query["created[lt]"]) - first) for query in asked(shop)]
        assert all(120 <= low < high <= 240 for low, high in bounds)
        configure("05:00", "06:00")
        run(shop)
        assert asked(shop) == []
        configure("02:00", "07:00")
        run(shop)
        bounds = [(int(query["created[gte]"]) - first, int(query["created[lt]"]) - first) for query in asked(shop)]
        assert bounds
        assert all(360 <= low < high <= 420 for low, high in bounds)
        found = [row["id"] for row in shop.rows()]
        assert sorted(found) == sorted(id_ for id_, at in shop.server.objects("charges") if 120 <= at - first < 420)


# ---------------------------------------------------------------- what fails, and what goes on


def test_one_is_forbidden_one_always_fails_and_the_others_are_complete(tmp_path: Path) -> None:
    endpoints: dict[str, dict[str, Any]] = {
        "charges": {},
        "refunds": {"status": 403},
        "disputes": {"status": 500},
        "payouts": {},
    }
    with RestShop.open(tmp_path, endpoints) as shop:
        shop.write(dict.fromkeys(endpoints, "{time: {lag: 0}}"))
        shop.server.arrive("charges", 300)
        shop.server.arrive("payouts", 300)
        done = shop.command.run("run", "shop.yaml", "--json")
        assert done.code == 1
        assert statuses(done) == {"charges": "complete", "payouts": "complete", "disputes": "error"}
        catalog = {each["stream"]: each["skipped"] for each in done.messages[0]["streams"]}
        assert catalog["refunds"] is not None
        assert "status 403 (refunds always answers 403), request id req_" in catalog["refunds"]
        (error,) = [each for each in done.messages if each.get("status") == "error"]
        assert "GET disputes?limit=1: status 500" in error["reason"]
        assert "2 retries did not help" in error["reason"]
        assert shop.differences("charges") == shop.differences("payouts") == {}
        shop.server.arrive("charges", 300)
        plain = shop.command.run("run", "shop.yaml", "--plain")
        assert plain.code == 1
        *recap, last = plain.out.splitlines()[-3:]
        assert [line.partition(": GET ")[0].partition(" ")[2] for line in recap] == [
            "shop/refunds: skipped",
            "shop/disputes: failed",
        ]
        assert "status 403 (refunds always answers 403)" in recap[0]
        assert "status 500 (disputes always answers 500)" in recap[1]
        assert "shop: failed: 1 of 4 streams (disputes); skipped: refunds; 300 rows" in last


def test_bad_credentials_fail_the_connection(tmp_path: Path) -> None:
    with RestShop.open(tmp_path, environment={"TOKEN": "sk_wrong_key"}, token="sk_right") as shop:
        shop.write(source='auth: {bearer: "${TOKEN}"}')
        done = shop.command.run("run", "shop.yaml")
        assert done.code == 3
        assert "the API does not accept the credentials" in done.err
        assert "sk_wrong_key" not in done.out + done.err


def test_a_server_that_is_gone_fails_the_connection(tmp_path: Path) -> None:
    with RestShop.open(tmp_path) as shop:
        shop.write()
    done = shop.command.run("run", "shop.yaml")
    assert done.code == 3
    assert "cannot be reached" in done.err


@pytest.mark.parametrize("token", ["bearer", "basic", "header", "query", "oauth"])
def test_every_way_to_sign_in(token: str, tmp_path: Path) -> None:
    ways = {
        "bearer": 'bearer: "${TOKEN}"',
        "basic": 'basic: "${TOKEN}"',
        "header": 'header: {Authorization: "${TOKEN}"}',
        "query": 'query: {key: "${TOKEN}"}',
        "oauth": 'oauth: {token_url: "${API}/oauth/token", client_id: someone, client_secret: "${TOKEN}"}',
    }
    given = {"basic": "Basic c2tfdGVzdDphYmM="}.get(token, "sk_test:abc")
    with RestShop.open(tmp_path, environment={"TOKEN": "sk_test:abc"}, token=given) as shop:
        shop.write(source=f"auth: {{{ways[token]}}}")
        shop.server.arrive("charges", 150)
        done = run(shop)
        assert shop.differences() == {}
        assert "sk_test" not in done.out + done.err
        assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"sk_test:abc" in path.read_bytes()]


@pytest.mark.parametrize("paging", ["next_url", "link"])
def test_a_secret_in_the_address_of_the_next_page_is_kept_nowhere(paging: str, tmp_path: Path) -> None:
    """The API repeats the whole query, with the key, in the address that it gives; the mark has the rest of it."""
    with RestShop.open(
        tmp_path, {"charges": {"paging": paging}}, environment={"TOKEN": "sk_test:abc"}, token="sk_test:abc"
    ) as shop:
        shop.write(
            {"charges": f"{{time: {{lag: 0}}, paging: {{by: {paging}}}}}"}, source='auth: {query: {key: "${TOKEN}"}}'
        )
        shop.server.arrive("charges", 900)
        shop.command.kill_at("gate.advanced", "run", "shop.yaml")
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert [path for path in files if b"page_token" in path.read_bytes()], "a mark in the middle of a range"
        run(shop)
        assert shop.differences() == {}
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        secrets = (b"sk_test:abc", b"sk_test%3Aabc")
        assert not [path for path in files if any(secret in path.read_bytes() for secret in secrets)]


def test_everything_goes_wrong_now_and_then(tmp_path: Path) -> None:
    """429 with Retry-After, 500, resets, slow and truncated bodies: every object arrives once."""
    with RestShop.open(
        tmp_path, errors=0.05, resets=0.05, slow=0.02, truncated=0.05, rate=60, retry_after="0.1"
    ) as shop:
        shop.write(source="concurrency: 8", slice_bytes=1 << 20)
        text = (tmp_path / "shop.yaml").read_text().replace("retries: 2", "retries: 12")
        (tmp_path / "shop.yaml").write_text(text)
        shop.server.arrive("charges", 10_000)
        run(shop)
        assert shop.differences() == {}
        assert {each["status"] for each in shop.server.requests()} >= {0, 200, 429, 500}
