"""The receiver's tokens: shown once, kept as hashes, revoked at once, and never forgotten by accident."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from penstock.core.documents import canonical, digest
from penstock.errors import InputError
from penstock.service.tokens import FILE, PREFIX, SCOPES, Token, TokenFile

START = datetime(2026, 11, 19, 12, 0, tzinfo=UTC)


def test_a_secret_is_returned_once_and_only_its_hash_is_kept(tmp_path: Path) -> None:
    tokens = TokenFile(str(tmp_path))
    secret = tokens.create("shop", ["ingest"])

    assert re.fullmatch(re.escape(PREFIX) + r"[A-Za-z0-9_-]{43}", secret)  # 256 bits
    assert tokens.create("other", ["ingest"]) != secret
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert secret.removeprefix(PREFIX).encode() not in kept
    assert hashlib.sha256(secret.encode()).hexdigest().encode() in kept


def test_the_file_belongs_to_its_owner_alone_and_is_no_stream(tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        TokenFile(str(tmp_path / "received")).create("shop", ["ingest"])
    finally:
        os.umask(umask)

    assert stat.S_IMODE((tmp_path / "received" / FILE).stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "received").stat().st_mode) == 0o700
    assert all(path.name.startswith(".") for path in (tmp_path / "received").iterdir())


def test_a_token_is_recognised_by_its_whole_secret(tmp_path: Path) -> None:
    tokens = TokenFile(str(tmp_path), lambda: START)
    secret = tokens.create("shop", ["ingest", "read"], ["orders", "events"])

    assert tokens.authenticate(secret) == Token(
        "shop", frozenset({"ingest", "read"}), ("events", "orders"), created=START
    )
    for wrong in ("", PREFIX, secret[:-1], secret + "=", secret.lower(), secret.removeprefix(PREFIX), "\udcff", "é"):
        assert tokens.authenticate(wrong) is None


@pytest.mark.parametrize("scope", SCOPES)
def test_a_token_allows_its_scopes_for_its_streams(scope: str) -> None:
    bound = Token("a", frozenset({scope}), ("orders",))
    for asked in SCOPES:
        allowed = asked == scope or scope == "admin"
        assert bound.allows(asked, "orders") is allowed
        assert bound.allows(asked, "events") is False
        assert bound.allows(asked, None) is False  # it reaches some streams, not all
        assert Token("a", frozenset({scope})).allows(asked, "events") is allowed
        assert Token("a", frozenset({scope})).allows(asked, None) is allowed


def test_a_revoked_token_stops_counting_in_a_process_that_runs(tmp_path: Path) -> None:
    running = TokenFile(str(tmp_path))
    assert TokenFile(str(tmp_path)).is_empty
    assert running.list() == []

    secret = TokenFile(str(tmp_path)).create("shop", ["ingest"])
    assert not running.is_empty
    assert running.authenticate(secret) is not None

    TokenFile(str(tmp_path)).revoke("shop")
    assert running.authenticate(secret) is None
    assert running.list() == []
    assert not running.is_empty, "without its last token a receiver would be open to everybody"


def test_an_expired_token_does_not_count_and_is_still_listed(tmp_path: Path) -> None:
    now = [START]
    tokens = TokenFile(str(tmp_path), lambda: now[0])
    secret = tokens.create("shop", ["ingest"], expires=START + timedelta(days=1))

    now[0] = START + timedelta(days=1, microseconds=-1)
    assert tokens.authenticate(secret) is not None
    now[0] = START + timedelta(days=1)
    assert tokens.authenticate(secret) is None
    assert [(each.name, each.has_expired(now[0])) for each in tokens.list()] == [("shop", True)]


def test_mistakes_are_refused_and_change_nothing(tmp_path: Path) -> None:
    tokens = TokenFile(str(tmp_path / "received"))
    for name in ("", "-shop", "a b", "../shop", "a" * 65):
        with pytest.raises(InputError, match="cannot name a token"):
            tokens.create(name, ["ingest"])
    with pytest.raises(InputError, match="no scope 'ingst'; did you mean 'ingest'"):
        tokens.create("shop", ["ingst"])
    with pytest.raises(InputError, match="has no scope"):
        tokens.create("shop", [])
    with pytest.raises(InputError, match="cannot be bound to streams"):
        tokens.create("shop", ["admin"], ["orders"])
    with pytest.raises(InputError, match="no token 'shop'"):
        tokens.revoke("shop")
    assert not (tmp_path / "received").exists()

    secret = tokens.create("shop", ["ingest"])
    with pytest.raises(InputError, match="already a token named 'shop'"):
        tokens.create("shop", ["read"])
    with pytest.raises(InputError, match=r"no token 'shp' .*did you mean 'shop'"):
        tokens.revoke("shp")
    assert tokens.authenticate(secret) is not None


def test_every_flipped_byte_of_the_file_stops_and_names_it(tmp_path: Path) -> None:
    secret = TokenFile(str(tmp_path)).create("shop", ["ingest"], ["orders"], START)
    path = tmp_path / FILE
    whole = path.read_bytes()
    for at in range(len(whole)):
        for flip in (0x01, 0x20, 0x80):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :])
            tokens = TokenFile(str(tmp_path))
            for use in (lambda t=tokens: t.is_empty, tokens.list, lambda t=tokens: t.authenticate(secret)):
                with pytest.raises(InputError, match=r"\.tokens\.json is damaged") as raised:
                    use()
            assert "penstock token create" in raised.value.next_step
    for size in (0, 1, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(InputError, match="is damaged"):
            _ = TokenFile(str(tmp_path)).is_empty


def test_a_file_of_a_later_version_stops(tmp_path: Path) -> None:
    TokenFile(str(tmp_path)).create("shop", ["ingest"])
    document = json.loads((tmp_path / FILE).read_text())
    del document["checksum"]
    document["version"] = 2
    (tmp_path / FILE).write_text(canonical({**document, "checksum": digest(canonical(document))}))

    with pytest.raises(InputError, match="version 2, and this penstock reads version 1"):
        TokenFile(str(tmp_path)).list()


def test_a_file_that_vanishes_under_a_running_receiver_opens_nothing(tmp_path: Path) -> None:
    running = TokenFile(str(tmp_path))
    secret = running.create("shop", ["ingest"])
    (tmp_path / FILE).unlink()

    with pytest.raises(InputError, match="was there, and is gone"):
        running.authenticate(secret)
    with pytest.raises(InputError, match="was there, and is gone"):
        _ = running.is_empty
    with pytest.raises(InputError, match="was there, and is gone"):
        running.create("other", ["ingest"])


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602])
def test_a_file_that_others_may_read_or_change_stops(tmp_path: Path, mode: int) -> None:
    secret = TokenFile(str(tmp_path)).create("shop", ["ingest"])
    (tmp_path / FILE).chmod(mode)

    with pytest.raises(InputError, match="by other users") as raised:
        TokenFile(str(tmp_path)).authenticate(secret)
    assert f"chmod 600 {tmp_path / FILE}" in raised.value.next_step


def test_tokens_created_at_once_are_all_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one comes while the first is about to be renamed."""
    real = os.rename
    seconds: list[threading.Thread] = []

    def rename(old: str, new: str) -> None:
        if not seconds:
            seconds.append(threading.Thread(target=lambda: TokenFile(str(tmp_path)).create("second", ["read"])))
            seconds[0].start()
            seconds[0].join(0.5)  # without a lock it is done by then, and the first rename undoes it
        real(old, new)

    monkeypatch.setattr(os, "rename", rename)
    TokenFile(str(tmp_path)).create("first", ["ingest"])
    seconds[0].join(30)
    assert [each.name for each in TokenFile(str(tmp_path)).list()] == ["first", "second"]


def test_a_process_that_is_killed_while_it_writes_leaves_the_tokens_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = TokenFile(str(tmp_path))
    secret = tokens.create("shop", ["ingest"])

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("penstock.service.tokens.os.rename", die)
        with pytest.raises(KeyboardInterrupt):
            tokens.create("other", ["ingest"])

    assert [each.name for each in TokenFile(str(tmp_path)).list()] == ["shop"]
    assert tokens.authenticate(secret) is not None
    tokens.create("other", ["ingest"])  # what the killed one left is in nobody's way
    assert [each.name for each in tokens.list()] == ["other", "shop"]
