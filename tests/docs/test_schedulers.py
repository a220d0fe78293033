"""The examples for cron and systemd, carried out as they stand: with no environment but what they bring themselves."""

from __future__ import annotations

import configparser
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import psycopg
import pyarrow.dataset as ds
from tests.docs.pages import TOP

EXAMPLES = TOP / "examples"
#: where the examples lie
FOLDER = "/srv/shop"


def without_environment(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/usr/bin/env", "-i", "/bin/sh", "-c", command.replace(FOLDER, str(folder))],
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def job_of_crontab() -> str:
    (line,) = [line for line in (EXAMPLES / "crontab").read_text().splitlines() if not line.startswith("#")]
    *when, command = line.split(maxsplit=5)
    assert len(when) == 5
    assert "%" not in command, "cron would take it for a new line"
    return command


def job_of_systemd() -> str:
    unit = configparser.ConfigParser()
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # as the standard library's documentation says
    unit.read(EXAMPLES / "systemd" / "penstock-shop.service")
    service = unit["Service"]
    words = shlex.split(service["ExecStart"])
    assert words[0].startswith("/"), "systemd searches no PATH of ours"
    return f"cd {service['WorkingDirectory']} && exec {shlex.join(words)}"


def test_they_run_without_an_environment(tmp_path: Path, database: str) -> None:
    shop = tmp_path / "shop"
    shop.mkdir()
    shutil.copy(EXAMPLES / "shop.yaml", shop)
    (shop / ".venv").symlink_to(Path(sys.executable).parent.parent)
    variables = (EXAMPLES / "penstock.env").read_text().replace("postgresql://shop@localhost/shop", database)
    assert database in variables
    if java := os.environ.get("JAVA_HOME"):
        variables += f"JAVA_HOME={java}\n"
    (shop / "penstock.env").write_text(variables)
    with psycopg.connect(database, autocommit=True) as db:
        db.execute("CREATE TABLE orders (id bigint PRIMARY KEY, updated_at timestamptz)")
        db.execute("CREATE INDEX ON orders (updated_at, id)")
        db.execute("INSERT INTO orders SELECT g, timestamptz '2026-01-01Z' FROM generate_series(1, 7) g")

    done = without_environment(job_of_crontab(), shop)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), (shop / "penstock.log").read_text()
    assert ds.dataset(shop / "out" / "orders").count_rows() == 7
    assert (shop / "last-success").exists()

    (shop / "last-success").unlink()
    done = without_environment(job_of_systemd(), shop)
    assert done.returncode == 0, done.stderr
    assert "nothing new" in done.stdout
    assert (shop / "last-success").exists()
    assert not (shop / "failures.log").exists()

    with psycopg.connect(database, autocommit=True) as db:
        db.execute("DROP TABLE orders")
    done = without_environment(job_of_crontab(), shop)
    assert done.returncode == 1, "the last test of its line has failed, and cron sees it"
    assert " shop (2): orders: " in (shop / "failures.log").read_text()
