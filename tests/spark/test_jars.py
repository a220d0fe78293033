"""Java libraries are fetched once, whole or not at all, and a failure says what to do.

Ivy's part is played by a script; that the real ones load is seen in test_session_provider.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import psutil
import pytest

from penstock.errors import InputError
from penstock.links.spark import jars
from penstock.testing.contracts.mover import until

#: resolves as Spark's Ivy does, from jars that a test lays ready in `maven`, and counts its calls
SUBMIT = """#!/usr/bin/env bash
for word in "$@"; do
  case $word in
    spark.jars.ivy=*) ivy=${word#*=} ;;
    spark.jars.packages=*) packages=${word#*=} ;;
  esac
done
here=$(dirname "$0")
echo "$*" >>"$here/calls"
mkdir "$ivy/jars"
for package in ${packages//,/ }; do
  name=$(echo "$package" | sed 's/:/_/; s/:/-/').jar
  cp "$here/maven/$name" "$ivy/jars/$name" 2>/dev/null ||
    echo "Exception in thread main java.lang.RuntimeException: [unresolved dependency: $package: not found]" >&2
done
[ ! -e "$here/hang" ] || { echo $$ >"$here/started"; mv "$here/started" "$here/hanging"; exec sleep 600; }
"""


class Maven:
    """What can be fetched, and how often something was."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def offer(self, package: str, content: bytes | None = None) -> None:
        group, artifact, version = package.split(":")
        file = self.folder / "maven" / f"{group}_{artifact}-{version}.jar"
        if content is not None:
            file.write_bytes(content)
            return
        with zipfile.ZipFile(file, "w") as jar:
            jar.writestr("what", package)

    @property
    def calls(self) -> list[str]:
        calls = self.folder / "calls"
        return calls.read_text().splitlines() if calls.exists() else []


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_JARS", str(tmp_path / "jars"))
    return tmp_path / "jars"


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Maven:
    submit = tmp_path / "spark" / "bin" / "spark-submit"
    (submit.parent / "maven").mkdir(parents=True)
    submit.write_text(SUBMIT)
    submit.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    return Maven(submit.parent)


def what(file: Path) -> str:
    with zipfile.ZipFile(file) as jar:
        return jar.read("what").decode()


def test_each_package_is_one_file_in_the_order_asked_for_and_fetched_once(cache: Path, maven: Maven) -> None:
    for package in (jars.ICEBERG, jars.SQLITE, jars.AWS):
        maven.offer(package)
    found = jars.files([jars.SQLITE, jars.ICEBERG])
    assert [what(file) for file in found] == [jars.SQLITE, jars.ICEBERG]
    assert {file.parent for file in found} == {cache}
    assert jars.files([jars.SQLITE, jars.ICEBERG]) == found
    assert len(maven.calls) == 1
    assert what(jars.files([jars.AWS])[0]) == jars.AWS
    assert len(maven.calls) == 2
    assert jars.ICEBERG not in maven.calls[1]
    assert sorted(cache.iterdir()) == sorted([*found, *jars.files([jars.AWS])]), "nothing else is left behind"


def test_nothing_is_needed_nothing_is_fetched(cache: Path, maven: Maven) -> None:
    assert jars.files([]) == []
    assert (maven.calls, cache.exists()) == ([], False)


def test_a_half_file_is_fetched_again(cache: Path, maven: Maven) -> None:
    maven.offer(jars.SQLITE)
    (file,) = jars.files([jars.SQLITE])
    file.write_bytes(file.read_bytes()[:-10])
    assert what(jars.files([jars.SQLITE])[0]) == jars.SQLITE
    assert len(maven.calls) == 2


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 half"])
def test_half_a_download_is_not_taken_for_good(cache: Path, maven: Maven, content: bytes) -> None:
    maven.offer(jars.SQLITE, content)
    with pytest.raises(InputError, match="sqlite-jdbc"):
        jars.files([jars.SQLITE])
    assert list(cache.iterdir()) == []


def test_what_cannot_be_fetched_is_named_with_what_to_do(cache: Path, maven: Maven) -> None:
    maven.offer(jars.ICEBERG)
    with pytest.raises(InputError) as refused:
        jars.files([jars.ICEBERG, jars.POSTGRES])
    assert f"Spark needs {jars.POSTGRES}, which is not in {cache}" in refused.value.what
    assert "unresolved dependency" in refused.value.what
    assert "python -m penstock.links.spark.jars" in refused.value.next_step
    assert "PENSTOCK_JARS" in refused.value.next_step


def test_a_cache_that_cannot_be_made_is_named(tmp_path: Path, maven: Maven, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PENSTOCK_JARS", str(tmp_path / "file" / "jars"))
    with pytest.raises(InputError, match=f"Not a directory: {tmp_path / 'file' / 'jars'}"):
        jars.files([jars.SQLITE])


def test_a_repository_of_the_users_own_is_asked(cache: Path, maven: Maven) -> None:
    maven.offer(jars.SQLITE)
    jars.files([jars.SQLITE], {"spark.jars.repositories": "there", "spark.sql.catalog.lake.jdbc.password": "secret"})
    assert "spark.jars.repositories=there" in maven.calls[0]
    assert "secret" not in maven.calls[0]


def test_where_the_files_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PENSTOCK_JARS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert jars.folder() == tmp_path / "penstock" / "jars"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert jars.folder() == tmp_path / ".cache" / "penstock" / "jars"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_JARS", "here")
    assert jars.folder() == tmp_path / "here", "a relative path does not follow the process around"


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "penstock.links.spark.jars", *words], capture_output=True, text=True)


def test_the_command_fetches_the_usual_ones_and_prints_where_they_are(cache: Path, maven: Maven) -> None:
    maven.offer(jars.ICEBERG)
    failed = command()
    assert (failed.returncode, failed.stdout) == (2, "")
    assert f"Spark needs {jars.SQLITE}" in failed.stderr
    maven.offer(jars.SQLITE)
    fetched = command()
    assert [what(Path(line)) for line in fetched.stdout.splitlines()] == [jars.ICEBERG, jars.SQLITE]
    assert fetched.stderr == f"jars: fetching {jars.SQLITE} into {cache}\n", "the other one is there already"
    again = command()
    assert (again.returncode, again.stdout, again.stderr) == (0, fetched.stdout, "")


def test_the_command_takes_names(cache: Path, maven: Maven) -> None:
    maven.offer(jars.AWS)
    assert what(Path(command("aws").stdout.strip())) == jars.AWS
    unknown = command("asw")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert unknown.stderr == "jars: unknown: asw; known: iceberg, sqlite, postgres, aws\n"


def ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_who_gives_up_waiting_leaves_neither_process_nor_file(cache: Path, maven: Maven) -> None:
    maven.offer(jars.SQLITE)
    (maven.folder / "hang").touch()
    # Its last moments take long enough for the thread that waited to go on, if it were to.
    script = """
import atexit, signal, time
atexit.register(time.sleep, 0.5)
from penstock.errors import StreamFailed
from penstock.links.spark import SparkSessionProvider, jars
spark_provider = SparkSessionProvider()
signal.signal(signal.SIGTERM, lambda *_: spark_provider.cancel())
spark_provider.require({}, [jars.SQLITE])
try:
    spark_provider.session()
except StreamFailed as error:
    print(error.what)
spark_provider.close()
"""
    running = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=os.environ)
    until((maven.folder / "hanging").exists)
    running.send_signal(signal.SIGTERM)
    out, _ = running.communicate(timeout=30)
    assert (running.returncode, out) == (0, "the move was cancelled on request\n")
    until(lambda: ended(int((maven.folder / "hanging").read_text())))
    assert list(cache.iterdir()) == []
