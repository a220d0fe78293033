"""The pages on the receiver and its protocol: every command is run against a real receiver, every answer compared."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from tests.docs.pages import TOP, blocks
from tests.service.receiving import Receiver, receiving

from penstock.links.http import protocol
from penstock.service.problems import TITLES

RECEIVER = TOP / "docs" / "receiver.md"
PROTOCOL = TOP / "docs" / "http-protocol.md"
EXAMPLE = TOP / "examples" / "http-to-postgres.yaml"
SERVICE = TOP / "examples" / "systemd" / "penstock-receiver.service"
PORT = "8737"


def bash(command: str, port: int) -> str:
    """What a command prints, sent to this port."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command.replace(PORT, str(port))], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_commands_of_the_protocol(tmp_path: Path) -> None:
    shown = blocks(PROTOCOL, "bash", "json")
    with receiving(tmp_path / "r") as receiver:
        for command, answer in zip(shown, shown[1:], strict=False):
            if command.language == "bash":
                assert answer.language == "json", "what a command answers is shown below it"
                found = json.loads(bash(command.text, receiver.port))
                expected = json.loads(answer.text)
                assert [*found] == [*expected]
                assert without_times(found) == without_times(expected)
        assert [row["id"] for row in receiver.rows("orders")] == [1, 2, 3]
        document, problem = (json.loads(block.text) for block in shown[-2:])
        assert receiver.post("images", [document], "k", to="ops").json()["rows"] == 1
        again = receiver.post("images", [document] * 2, "k", to="ops")
        assert again.json() == problem


def without_times(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name != "key_counts_until"}


def test_every_status_and_header_is_on_the_page() -> None:
    page = PROTOCOL.read_text()
    listed = {int(status) for row in re.findall(r"^\| ([\d, ]+) \|", page, re.MULTILINE) for status in row.split(", ")}
    assert listed == set(TITLES)
    names = [name for name in vars(protocol) if isinstance(getattr(protocol, name), str) and name.isupper()]
    headers = {getattr(protocol, name) for name in names} - {protocol.PROBLEM, protocol.JSON, protocol.NDJSON}
    headers = {header for header in headers if re.fullmatch(r"[A-Z][A-Za-z]+(-[A-Z][A-Za-z]+)+", header)}
    assert len(headers) >= 11
    assert [header for header in sorted(headers) if f"`{header}" not in page] == []


@pytest.mark.timeout(900)
def test_from_curl_into_postgres(tmp_path: Path, database: str) -> None:
    (written,) = blocks(RECEIVER, "yaml")
    assert yaml.safe_load(written.text) == yaml.safe_load(EXAMPLE.read_text())
    receiver = Receiver(tmp_path / "r")
    (receiver.folder / EXAMPLE.name).write_text(EXAMPLE.read_text())
    receiver.arguments = lambda: ["serve", EXAMPLE.name, "--port", str(receiver.port)]  # type: ignore[method-assign]  # as the page has it
    receiver.command.environment = {"STORE_URL": database}
    commands = 0
    try:
        for block in blocks(RECEIVER, "console"):
            for part in block.text.split("$ ")[1:]:
                command, _, expected = part.strip().partition("\n")
                commands += 1
                if command.startswith("penstock serve"):
                    assert command == f"penstock serve {EXAMPLE.name} &"
                    receiver.start()
                    continue
                if command.startswith("penstock "):
                    ended = receiver.command.run(*command.split()[1:])
                    assert ended.code == 0, ended.err
                    found = ended.out + ended.err
                else:
                    found = bash(command, receiver.port)
                pattern = ".*".join(re.escape(each) for each in re.sub(r"^…\n", "", expected).split("…"))
                assert re.search(pattern, found), (command, found)
        with psycopg.connect(database) as db:
            rows = db.execute("SELECT id, status, amount::text FROM orders").fetchall()
        assert rows == [(1, "new", "12.50")]
        assert commands == 5
        # With a token, the door is closed to others.
        assert receiver.post("orders", [], "k").status_code == 401
    finally:
        receiver.kill()


def test_the_unit_names_a_command_and_its_exit_codes(tmp_path: Path) -> None:
    unit = SERVICE.read_text()
    (start,) = re.findall(r"^ExecStart=\S*/penstock (.*)$", unit, re.MULTILINE)
    receiver = Receiver(tmp_path / "r")
    (receiver.folder / "receiver.yaml").write_text("receiver: {directory: x, colour: red}\npipelines: {}\n")
    ended = receiver.command.run(*start.split())
    assert f"RestartPreventExitStatus={ended.code}\n" in unit
