"""A real archive, made behind a run: Java maps it, and does without one that does not fit."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from penstock.links.spark import SharedSpark, SparkOptions, SparkRequirements
from penstock.links.spark import archive as archives
from penstock.links.spark.archive import Archive
from penstock.links.spark.jvm import end_process
from penstock.links.spark.launch import Command
from penstock.links.spark.session import all_settings

# pyspark's own: `collect` leaves the socket it reads the result from to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

#: seconds in which an archive is made on a machine that is busy
MAKING_SECONDS = 400
RUN = """\
import time
from penstock.links.spark import SparkRequirements, SharedSpark, SparkOptions
from penstock.links.spark.daemon import start_workers
spark = SharedSpark(SparkOptions(memory="512m"))
start_workers(spark.open(SparkRequirements()), 2)
spark.end()
"""
WARM = """\
import json, os, sys, psutil
from penstock.links.spark import SparkOptions, archive
from penstock.warm.jvm import WarmSpark
spark = WarmSpark(SparkOptions(memory="512m"), {}, ())
spark.start()
words = psutil.Process(spark.pid).cmdline()
asked = []
archive.Archive.make_in_background = lambda archive: asked.append(archive.key)
spark.end()
print(json.dumps({"words": words, "asked": asked}))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the archive that one run has left."""
    path = tmp_path_factory.mktemp("caches") / "archives"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(archives.VARIABLE, str(path))
        patch.delenv(archives.TRAINING_VARIABLE, raising=False)
        patch.delenv("PYTHONPATH", raising=False)
        done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert not list(path.glob("*.jsa")), "the end of the run was not to wait for it"
        deadline = time.monotonic() + MAKING_SECONDS
        while not list(path.glob("*.jsa")):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        yield path


@pytest.fixture
def command() -> Command:
    found = Command.plain(all_settings(SparkOptions(memory="512m"), {}, []), os.environ)
    assert found is not None
    return found


@pytest.fixture
def archive(folder: Path, command: Command) -> Iterator[Archive]:
    """The archive; whatever a test does to it is undone."""
    found = Archive.of(command)
    assert found is not None
    (file,) = folder.glob("*.jsa")
    kept = folder / "kept"
    os.link(file, kept)
    yield found
    file.unlink(missing_ok=True)  # a rename between two names of one file does nothing
    kept.rename(file)
    found.attempts_file.unlink(missing_ok=True)


def classes_from_archive(command: Command, archive: Archive, tmp_path: Path) -> tuple[int, str]:
    """How many classes Java takes from the archive until it can be reached, and what it says meanwhile."""
    listing = tmp_path / "classes"
    with (tmp_path / "said").open("w") as said:
        launched = command.launch(tmp_path, said.fileno(), archive, [f"-Xlog:class+load:file={listing}"])
        while not launched.address.exists():
            assert launched.process.poll() is None, (tmp_path / "said").read_text()
            time.sleep(0.05)
        end_process(launched.process)
    assert launched.process.returncode == 0
    loaded = listing.read_text().splitlines()
    return sum("shared objects file (top)" in line for line in loaded), (tmp_path / "said").read_text()


def file_of(archive: Archive) -> Path:
    found = archive.file()
    assert found is not None
    return found


def test_the_archive_is_private_and_nothing_else_is_left(archive: Archive, folder: Path) -> None:
    file = file_of(archive)
    assert sorted(path.name for path in folder.iterdir()) == sorted([file.name, "kept", "lock"])
    assert (folder.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)


def test_java_takes_sparks_classes_from_it(command: Command, archive: Archive, tmp_path: Path) -> None:
    count, said = classes_from_archive(command, archive, tmp_path)
    assert count > 500
    assert complaints(said) == []


@pytest.mark.parametrize("fault", ["truncated", "garbage", "empty", "header", "gone"])
def test_java_does_without_one_that_is_broken(fault: str, command: Command, archive: Archive, tmp_path: Path) -> None:
    file = file_of(archive)
    whole = file.read_bytes()
    file.unlink()
    broken = {
        "truncated": whole[: len(whole) // 2],
        "garbage": os.urandom(1 << 20),
        "empty": b"",
        "header": whole[:64] + os.urandom(512) + whole[576:],
    }
    if fault in broken:
        file.write_bytes(broken[fault])
        file.chmod(0o600)
        if fault != "truncated":  # Java dies of that one: it must not get it at all
            file = file.rename(file.with_name(archive.name_for(len(broken[fault]))))
    try:
        count, said = classes_from_archive(command, archive, tmp_path)
    finally:
        file.unlink(missing_ok=True)
    assert (count, complaints(said)) == (0, [])


def complaints(said: str) -> list[str]:
    return [line for line in said.splitlines() if re.search("cds|archive|shared", line, re.IGNORECASE)]


def test_a_run_goes_on_without_one_whose_content_was_changed(archive: Archive, tmp_path: Path) -> None:
    """Java may ignore it or die of it: the run has its rows, says nothing and leaves no report."""
    file = file_of(archive)
    whole = file.read_bytes()
    file.unlink()
    file.write_bytes(whole[:100_000] + os.urandom(len(whole) - 100_000))
    file.chmod(0o600)
    done = subprocess.run(
        [sys.executable, "-c", RUN], capture_output=True, text=True, check=False, cwd=tmp_path,
        env=os.environ | {archives.TRAINING_VARIABLE: "off"},
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


def test_java_does_without_one_of_another_class_path(archive: Archive, tmp_path: Path) -> None:
    """Nothing but a mistake in the key could bring them together."""
    (tmp_path / "other.jar").write_bytes(b"PK\x05\x06" + bytes(18))
    other = Command.plain(all_settings(SparkOptions(memory="512m"), {}, [tmp_path / "other.jar"]), os.environ)
    assert other is not None
    count, said = classes_from_archive(other, archive, tmp_path)
    assert (count, complaints(said)) == (0, [])


def test_a_jvm_that_dies_with_it_is_replaced_by_one_without(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Archive.options

    def deadly(archive: Archive, scratch: Path) -> list[str]:
        return [*found, "-Xmx1k"] if (found := whole(archive, scratch)) else []

    monkeypatch.setattr(Archive, "options", deadly)
    asked: list[str] = []
    monkeypatch.setattr(Archive, "make_in_background", lambda self: asked.append(self.key))
    spark = SharedSpark(SparkOptions(memory="512m"))
    session = spark.open(SparkRequirements())
    assert session.sparkContext.parallelize(range(3), 1).sum() == 3
    spark.end()
    assert archive.file() is None
    assert not archive.is_wanted(), "it is not made again at once"
    assert asked == [archive.key]


def test_a_warm_worker_uses_it_and_has_it_made(archive: Archive) -> None:
    done = subprocess.run([sys.executable, "-c", WARM], capture_output=True, text=True, check=True)
    said = json.loads(done.stdout.splitlines()[-1])
    assert f"-XX:SharedArchiveFile={file_of(archive)}" in said["words"]
    assert said["asked"] == [archive.key]


def test_a_run_that_is_cut_short_has_none_made(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Archive, "make_in_background", lambda _: pytest.fail("the run did not end cleanly"))
    spark = SharedSpark(SparkOptions(memory="512m"))
    spark.open(SparkRequirements())
    (process,) = [child for child in psutil.Process().children() if child.name() == "java"]
    assert f"-XX:SharedArchiveFile={file_of(archive)}" in process.cmdline()
    spark.end(orderly=False)
    again = SharedSpark(SparkOptions(memory="512m"))
    again.open(SparkRequirements())
    (process,) = [child for child in psutil.Process().children() if child.name() == "java"]
    process.kill()
    process.wait()
    again.end()
