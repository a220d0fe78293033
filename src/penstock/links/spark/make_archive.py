"""Makes an archive of the classes that Spark loads: starts the same JVM, lets it do what runs do, and ends it.

    python -m penstock.links.spark.make_archive

makes those that this user lacks: for runs without a lake, and with one if its Java libraries are there. A run that ends
cleanly starts it in the background with the settings of its own JVM. One works at a time; a JVM writes its archive when
it ends, which takes a quarter of a minute.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.links.durable import sync
from penstock.links.spark import jars
from penstock.links.spark.archive import Archive, make_folder, remove_oldest
from penstock.links.spark.daemon import start_workers
from penstock.links.spark.jvm import Jvm, stop
from penstock.links.spark.launch import Command
from penstock.links.spark.log import SparkLog
from penstock.links.spark.session import SparkOptions, _settings, start

#: seconds that a JVM may take to write its archive and end
END_SECONDS = 600
#: what a folder's name begins with in which an archive is made
_MAKING = "making-"
_EXTENSION = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


def make(archive: Archive, *, wait: bool) -> bool:
    """Make an archive unless another process is at it; with `wait`, after that. False: it was not made."""
    make_folder(archive.folder)
    with _alone(archive.folder, wait=wait) as alone:
        if not alone or not archive.is_wanted():
            return alone and archive.file() is not None
        for left in archive.folder.glob(f"{_MAKING}*"):
            shutil.rmtree(left, ignore_errors=True)  # of a process that was killed: we hold the lock
        archive.note_attempt()
        with tempfile.TemporaryDirectory(prefix=_MAKING, dir=archive.folder) as place:
            made = Path(place, "archive")
            command = _train(archive.settings, made, Path(place))
            if not _fits(command, made):
                return False
            _sync(made)
            os.replace(made, archive.folder / archive.name_for(made.stat().st_size))
        archive.attempts_file.unlink(missing_ok=True)
        remove_oldest(archive.folder)
        return True


@contextlib.contextmanager
def _alone(folder: Path, *, wait: bool) -> Iterator[bool]:
    """Hold the folder's lock; False: another process has it."""
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield _lock(handle, wait=wait)
    finally:
        os.close(handle)


def _lock(handle: int, *, wait: bool) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def _train(settings: Mapping[str, str], made: Path, place: Path) -> Command:
    """Start the JVM, work in it, and wait until it has ended; its command. RuntimeError if there is none of our own."""
    from pyspark import SparkContext

    scratch = place / "scratch"
    scratch.mkdir()
    options = SparkOptions(memory=settings["spark.driver.memory"])
    wanted = {**settings, **_lake(settings, place)}
    public = _settings(options, settings, [], scratch)
    command = Command.plain(public, os.environ)
    if command is None:
        raise RuntimeError("this JVM is started by spark-submit")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    log = SparkLog()
    with log.opened(place) as handle:
        launched = command.launch(scratch, handle, more=[f"-XX:ArchiveClassesAtExit={made}"])
    process = launched.process
    try:
        gateway = launched.gateway()
        SparkContext._gateway, SparkContext._jvm = gateway, gateway.jvm
        session = start(options, wanted, [], log, scratch)
        work(session, lake=len(wanted) > len(settings))
        stop(session)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=END_SECONDS)
        Jvm(gateway).end()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    return command


#: what a merge into a table of the lake and its upkeep have Spark do
_STATEMENTS = (
    "CREATE NAMESPACE training.work",
    "CREATE TABLE training.work.rows (id bigint, name string) USING iceberg "
    "TBLPROPERTIES ('write.delete.mode'='merge-on-read', 'write.merge.mode'='merge-on-read')",
    "INSERT INTO training.work.rows VALUES (1, 'a'), (2, 'b')",
    "MERGE INTO training.work.rows old USING (SELECT /*+ broadcast(s) */ * FROM (SELECT 1L AS id) s) new "
    "ON old.id = new.id WHEN MATCHED THEN DELETE",
    "CALL training.system.rewrite_data_files(table => 'work.rows', strategy => 'sort', sort_order => 'id', "
    "options => map('rewrite-all', 'true'))",
)


def work(session: Any, *, lake: bool) -> None:
    """Do with a session what runs do: parts in Python workers and, with a lake, a merge into a table."""
    for _ in range(2):
        start_workers(session, 2)
    if lake:
        for statement in _STATEMENTS:
            session.sql(statement).collect()


def _lake(settings: Mapping[str, str], place: Path) -> dict[str, str]:
    """The settings of a lake that is used up by training; none without Iceberg on the class path."""
    names = [os.path.basename(entry) for entry in settings.get("spark.driver.extraClassPath", "").split(os.pathsep)]
    if not any("iceberg-spark-runtime" in name for name in names):
        return {}
    at = "spark.sql.catalog.training"
    found = {
        "spark.sql.extensions": _EXTENSION,
        at: "org.apache.iceberg.spark.SparkCatalog",
        f"{at}.cache-enabled": "false",
        f"{at}.warehouse": str(place / "lake"),
    }
    if any("sqlite-jdbc" in name for name in names):
        catalog = f"jdbc:sqlite:{place / 'catalog.db'}"
        return found | {f"{at}.type": "jdbc", f"{at}.jdbc.schema-version": "V1", f"{at}.uri": catalog}
    return found | {f"{at}.type": "hadoop"}


def _fits(command: Command, made: Path) -> bool:
    """Whether there is an archive, and the same Java takes it."""
    if not made.is_file():
        return False
    words = command.words([f"-XX:SharedArchiveFile={made}", "-Xshare:on", "-version"])
    nothing = subprocess.DEVNULL
    return subprocess.run(words, stdin=nothing, stdout=nothing, stderr=nothing, check=False).returncode == 0


def _sync(file: Path) -> None:
    """Have it on the disk before it gets its name: half of one could be mapped after a power cut."""
    sync(file)
    file.chmod(0o600)


def missing() -> Iterator[Archive]:
    """The archives for runs with the default settings, without a lake and with one."""
    lake = [jars.file_of(package) for package in jars.USUAL]
    for files in ([], lake):
        if not all(file.exists() for file in files):
            continue
        command = Command.plain(_settings(SparkOptions(), {}, files), os.environ)
        archive = Archive.of(command) if command is not None else None
        if archive is not None:
            yield archive


def main(words: Sequence[str]) -> int:
    if words:
        command = Command.plain(json.loads(words[0]), os.environ)
        archive = Archive.of(command) if command is not None else None
        return 0 if archive is not None and make(archive, wait=False) else 1
    wanted = list(missing())
    for archive in wanted:
        if archive.file() is None:
            with contextlib.suppress(OSError):
                archive.attempts_file.unlink()  # a user who calls this asks for another attempt
            print(f"training: making an archive in {archive.folder}", file=sys.stderr)
            try:
                made = make(archive, wait=True)
            except OSError as error:
                print(f"training: {error}", file=sys.stderr)
                return 1
            if not made:
                print("training: Java has made no archive that it accepts", file=sys.stderr)
                return 1
        print(archive.file())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
