"""`penstock token`: the secret is printed once, on standard output alone, and a directory is named in two ways."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from penstock.cli import app
from penstock.service.tokens import TokenFile

FILE = """\
pipelines:
  lake:
    source: {{type: wal, directory: {directory}}}
    sink: {{type: files, directory: out, format: ndjson}}
    streams: {{orders: {{columns: {{id: int64}}}}}}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(command: str) -> Result:
    return CliRunner().invoke(app, command.split(), prog_name="penstock")


def document(command: str) -> Any:
    done = call(f"{command} --json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_the_secret_is_all_that_standard_output_has() -> None:
    done = call("token create --directory received --name shop --scope ingest --scope read -s orders --expires 90d")
    assert done.exit_code == 0
    secret = done.stdout.removesuffix("\n")
    token = TokenFile("received").authenticate(secret)
    assert token is not None
    assert (token.name, token.scopes, token.streams) == ("shop", frozenset({"ingest", "read"}), ("orders",))
    assert token.created is not None
    assert token.expires is not None
    assert round((token.expires - token.created).total_seconds() / 86_400, 3) == 90
    assert secret not in done.stderr
    assert "Created token 'shop': ingest, read; streams orders; expires 20" in done.stderr
    assert "from now on every request needs a token" in done.stderr

    second = call("token create --directory received --name other --scope read")
    assert "all streams; never expires" in second.stderr
    assert "from now on" not in second.stderr
    for command in ("token list --directory received", "token list --directory received --json"):
        listed = call(command).output
        assert "shop" in listed
        assert secret not in listed
        assert second.stdout.strip() not in listed


def test_json_has_one_shape() -> None:
    created = document("token create --directory received --name shop --scope ingest --stream orders")
    secret = created.pop("secret")
    assert TokenFile("received").authenticate(secret) is not None
    assert created.pop("directory") == "received"
    listed = document("token list --directory received")
    assert listed == {"directory": "received", "tokens": [created], "needed": True}
    assert created["streams"] == [{"stream": "orders"}]
    assert (created["scopes"], created["expires"], created["has_expired"]) == (["ingest"], None, False)
    revoked = document("token revoke --directory received --name shop --yes")
    assert revoked == {"directory": "received", "revoked": "shop", "left": 0}


def test_a_revoked_token_is_refused_and_the_last_one_is_said() -> None:
    assert "answers everybody on this machine" in call("token list --directory received").stdout
    secrets = [call(f"token create --directory received --name {name} --scope read").stdout.strip() for name in "ab"]
    assert call("token revoke --directory received --name a --yes").stdout.endswith("Revoked token 'a'.\n")
    assert [TokenFile("received").authenticate(each) is None for each in secrets] == [True, False]
    assert "every request is refused now" in call("token revoke --directory received --name b --yes").stdout
    assert "refuses every request" in call("token list --directory received").stdout


def test_revoking_asks_first_and_says_what_it_takes_away() -> None:
    secret = call("token create --directory received --name shop --scope ingest -s orders").stdout.strip()
    done = call("token revoke --directory received --name shop")
    assert done.exit_code == 2
    assert "Token 'shop': ingest; streams orders; never expires." in done.stdout
    assert "add --yes" in done.stderr
    assert TokenFile("received").authenticate(secret) is not None


def test_a_pipeline_file_with_a_wal_source_names_the_directory(folder: Path) -> None:
    (folder / "below").mkdir()
    (folder / "below" / "shop.yaml").write_text(FILE.format(directory="received"))
    secret = call("token create below/shop.yaml --name shop --scope ingest").stdout.strip()
    assert TokenFile(str(folder / "below" / "received")).authenticate(secret) is not None
    refused = call("token revoke below/shop.yaml --name shpo --yes")
    assert refused.exit_code == 2
    assert "did you mean 'shop'?" in refused.stderr
    assert "Next: list them: penstock token list below/shop.yaml" in refused.stderr


def test_the_receiver_section_names_the_directory(folder: Path) -> None:
    (folder / "receiver.yaml").write_text(
        "receiver: {directory: logs, create_streams: true}\n" + FILE.format(directory="others")
    )
    secret = call("token create receiver.yaml --name shop --scope ingest").stdout.strip()
    assert TokenFile(str(folder / "logs")).authenticate(secret) is not None


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("token list", "name the receiver's directory either by FILE or by --directory"),
        ("token list shop.yaml --directory received", "either by FILE or by --directory"),
        ("token list files.yaml", "files.yaml has neither a `receiver` section nor a source of type wal"),
        ("token list gone.yaml", "gone.yaml"),
        ("token create --directory received --name shop --scope ingst", "did you mean 'ingest'?"),
        ("token create --directory received --name a/b --scope ingest", "cannot name a token"),
        ("token create --directory received --name shop --scope ingest --expires 9999999999d", "after the year 9999"),
        ("token create --directory received --name shop --scope ingest --expires soon", "is not a duration"),
        ("token create --directory received --scope ingest", "--name"),
    ],
)
def test_mistakes(folder: Path, command: str, said: str) -> None:
    postgres = FILE.replace("wal, directory: {directory}", "postgres, url: 'postgresql://h/x'")
    (folder / "files.yaml").write_text(postgres.replace("columns: {{id: int64}}", "cursor: id, unique: true").format())
    done = call(command)
    assert done.exit_code == 2
    assert said in done.stderr
    assert not (folder / "received").exists()


def test_a_damaged_file_stops_and_nothing_counts_as_no_tokens() -> None:
    call("token create --directory received --name shop --scope ingest")
    Path("received/.tokens.json").write_text("{}")
    for command in ("token list", "token create --name b --scope read", "token revoke --name shop --yes"):
        done = call(f"{command} --directory received")
        assert done.exit_code == 2
        assert "received/.tokens.json is damaged" in done.stderr
        assert "put the file back from a backup" in done.stderr
