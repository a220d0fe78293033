"""Tokens at the door: every endpoint but health needs one, with its scope, for its stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.service.receiving import JSON, Receiver, path_to, receiving
from tests.service.test_batches import problem

from penstock.links.http import protocol
from penstock.service.tokens import TokenFile

ROWS = [{"id": 1}]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Receiver, dict[str, str]]]:
    """A receiver with tokens, and the secret of each."""
    folder = tmp_path_factory.mktemp("guarded") / "r"
    receiver = Receiver(folder, {"create_streams": True})
    tokens = TokenFile(str(receiver.directory))
    secrets = {
        "shop": tokens.create("shop", ["ingest"], ["orders"]),
        "crm": tokens.create("crm", ["ingest"]),
        "prometheus": tokens.create("prometheus", ["read"]),
        "viewer": tokens.create("viewer", ["read"], ["orders"]),
        "root": tokens.create("root", ["admin"]),
    }
    receiver.start()
    try:
        for stream in ("orders", "others"):
            assert ask(receiver, "POST", path_to(stream), secrets["crm"]).status_code == 200
        yield receiver, secrets
    finally:
        receiver.kill()


def ask(receiver: Receiver, method: str, path: str, secret: str | None, scheme: str = "Bearer") -> httpx.Response:
    headers = (
        JSON | {protocol.KEY: "k"} | ({"Authorization": f"{scheme} {secret}".strip()} if secret is not None else {})
    )
    content = b'[{"id": 1}]' if method == "POST" else None
    return httpx.request(method, f"{receiver.url}{path}", headers=headers, content=content, timeout=30)


PRODUCER = protocol.producer_path("orders", "shop")
#: method, path, and who may; the others get 403
ENDPOINTS = [
    ("POST", path_to("orders"), {"shop", "crm", "root"}),
    ("POST", path_to("others"), {"crm", "root"}),
    ("GET", PRODUCER, {"shop", "crm", "root"}),
    ("DELETE", f"{PRODUCER}/slices/ab", {"shop", "crm", "root"}),
    ("GET", protocol.producer_path("others", "shop"), {"crm", "root"}),
    ("GET", "/v1/lag", {"prometheus", "viewer", "root"}),
    ("GET", "/metrics", {"prometheus", "viewer", "root"}),
    ("GET", "/openapi.json", {"shop", "crm", "prometheus", "viewer", "root"}),
]


@pytest.mark.parametrize(("method", "path", "allowed"), ENDPOINTS)
def test_who_may_do_what(guarded: tuple[Receiver, dict[str, str]], method: str, path: str, allowed: set[str]) -> None:
    receiver, secrets = guarded
    for secret in (None, "", "wrong", secrets["root"][:-1], f"{secrets['root']}x"):
        answer = ask(receiver, method, path, secret)
        problem(answer, 401)
        assert answer.headers["www-authenticate"] == "Bearer"
    problem(ask(receiver, method, path, secrets["root"], scheme="Basic"), 401)
    for name, secret in secrets.items():
        answer = ask(receiver, method, path, secret)
        if name in allowed:
            assert answer.status_code == 200, (name, answer.text)
        else:
            assert f"token {name} does not have the scope" in problem(answer, 403)["detail"]


def test_health_needs_no_token_and_names_no_stream(guarded: tuple[Receiver, dict[str, str]]) -> None:
    receiver, _ = guarded
    for path in ("/healthz", "/readyz"):
        answer = ask(receiver, "GET", path, None)
        assert answer.status_code == 200
        assert "orders" not in answer.text


def test_streams_of_others_are_not_shown(guarded: tuple[Receiver, dict[str, str]]) -> None:
    receiver, secrets = guarded
    seen = {each["stream"] for each in ask(receiver, "GET", "/v1/lag", secrets["viewer"]).json()["streams"]}
    assert seen == {"orders"}
    metrics = ask(receiver, "GET", "/metrics", secrets["viewer"]).text
    assert 'stream="orders"' in metrics
    assert "others" not in metrics
    both = ask(receiver, "GET", "/metrics", secrets["prometheus"]).text
    assert 'stream="orders"' in both
    assert 'stream="others"' in both


def test_a_name_without_a_stream_is_not_told_to_strangers(guarded: tuple[Receiver, dict[str, str]]) -> None:
    """Without a token, a stream that is there and one that is not are answered alike."""
    receiver, secrets = guarded
    answers = [ask(receiver, "POST", path_to(name), None).json() for name in ("orders", "nothing", "../x")]
    assert answers[0] == answers[1] == answers[2]
    answers = [ask(receiver, "POST", path_to(name), secrets["shop"]).json() for name in ("others", "nothing", "../x")]
    assert answers[0] == answers[1] == answers[2]


def test_a_bare_key_counts_within_its_token(guarded: tuple[Receiver, dict[str, str]]) -> None:
    receiver, secrets = guarded
    for name in ("crm", "root"):
        answer = ask(receiver, "POST", path_to("keys"), secrets[name])
        assert protocol.REPLAYED not in answer.headers
        assert ask(receiver, "POST", path_to("keys"), secrets[name]).headers[protocol.REPLAYED] == "true"
    assert receiver.rows("keys") == ROWS * 2


def test_a_token_is_needed_as_soon_as_there_is_one(tmp_path: Path) -> None:
    with receiving(tmp_path / "r") as receiver:
        assert receiver.post("orders", ROWS, "a").status_code == 200
        tokens = TokenFile(str(receiver.directory))
        secret = tokens.create("shop", ["ingest"])
        problem(receiver.post("orders", ROWS, "b"), 401)
        assert ask(receiver, "POST", path_to("orders"), secret).status_code == 200
        tokens.revoke("shop")
        problem(ask(receiver, "POST", path_to("orders"), secret), 401)


def test_without_tokens_another_name_for_this_machine_is_refused(tmp_path: Path) -> None:
    """A page in a browser here may name us as it likes, and would be let in as the user of this machine."""
    with receiving(tmp_path / "r") as receiver:
        for host in ("attacker.example", "127.0.0.1.attacker.example", "10.0.0.1"):
            problem(receiver.post("orders", ROWS, "k", Host=f"{host}:{receiver.port}"), 403)
        for host in ("localhost", "127.0.0.1", "[::1]"):
            assert receiver.post("orders", ROWS, "k", Host=f"{host}:{receiver.port}").status_code == 200
        secret = TokenFile(str(receiver.directory)).create("shop", ["ingest"])
        headers = {"Host": "penstock.example.com", "Authorization": f"Bearer {secret}"}
        assert receiver.post("orders", ROWS, "k", **headers).status_code == 200, "as behind a proxy"


def test_a_damaged_token_file_lets_nobody_in(tmp_path: Path) -> None:
    with receiving(tmp_path / "r") as receiver:
        tokens = TokenFile(str(receiver.directory))
        secret = tokens.create("shop", ["ingest"])
        assert ask(receiver, "POST", path_to("orders"), secret).status_code == 200
        path = Path(tokens.path)
        path.write_bytes(path.read_bytes()[:-9])
        found = problem(ask(receiver, "POST", path_to("orders"), secret), 503)
        assert str(tmp_path) not in str(found)
        assert receiver.stop().code == 0
        again = receiver.refuse()
        assert again.code == 2
        assert "is damaged" in again.err
