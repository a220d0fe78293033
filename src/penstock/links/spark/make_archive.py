"""Makes an archive of the classes that Spark loads: starts the same JVM, lets it do what runs do, and ends it.

    python -m penstock.links.spark.make_archive

makes those that this user lacks: for runs without a lake, and with one if its Java libraries are there. An archive fits
one class path only, so there are two; both are made at the same time. A run that ends cleanly starts this program in
the background with the settings of its own JVM. A JVM writes its archive when it ends, which takes about 15 seconds.
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
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from penstock.links.durable import sync
from penstock.links.spark import jars
from penstock.links.spark.archive import Archive, make_folder, remove_oldest
from penstock.links.spark.daemon import start_workers
from penstock.links.spark.jvm import Jvm, stop_session
from penstock.links.spark.launch import Command
from penstock.links.spark.log import SparkLog
from penstock.links.spark.session import SparkOptions, all_settings, start

#: seconds that a JVM may take to write its archive and end
END_SECONDS = 600
#: the prefix of a folder in which an archive is made
_FOLDER_PREFIX = "making-"
_EXTENSION = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


def make(archives: Sequence[Archive], *, wait: bool) -> bool:
    """Make archives unless another process makes some; with `wait`, after that. False: one of them was not made."""
    folder = archives[0].folder
    make_folder(folder)
    with _lock_folder(folder, wait=wait) as locked:
        if not locked:
            return False
        wanted = [archive for archive in archives if archive.is_wanted()]
        for leftover in folder.glob(f"{_FOLDER_PREFIX}*"):
            shutil.rmtree(leftover, ignore_errors=True)  # of a process that was killed: we hold the lock
        if len(wanted) == 1:
            _make(wanted[0])
        elif wanted:
            # One process for each, because PySpark has one JVM per process.
            with ProcessPoolExecutor(len(wanted), mp_context=get_context("fork")) as pool:
                list(pool.map(_make, wanted))
        remove_oldest(folder)
        return all(archive.file() is not None for archive in archives)


def _make(archive: Archive) -> None:
    """Make an archive, which is left out if the same Java does not accept it."""
    archive.note_attempt()
    with tempfile.TemporaryDirectory(prefix=_FOLDER_PREFIX, dir=archive.folder) as name:
        made = Path(name, "archive")
        command = _train(archive.settings, made, Path(name))
        if not _is_accepted(command, made):
            return
        _sync(made)
        os.replace(made, archive.folder / archive.name_for(made.stat().st_size))
    archive.attempts_file.unlink(missing_ok=True)


@contextlib.contextmanager
def _lock_folder(folder: Path, *, wait: bool) -> Iterator[bool]:
    """Hold the folder's lock; False: another process has it."""
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(handle)


def _train(settings: Mapping[str, str], made: Path, folder: Path) -> Command:
    """Start the JVM, work in it, wait for its end; its command. RuntimeError if only `spark-submit` starts it."""
    from pyspark import SparkContext

    temp_folder = folder / "temp"
    temp_folder.mkdir()
    options = SparkOptions(memory=settings["spark.driver.memory"])
    wanted = {**settings, **_lake_settings(settings, folder)}
    public = all_settings(options, settings, [], temp_folder)
    command = Command.plain(public, os.environ)
    if command is None:
        raise RuntimeError("this JVM is started by spark-submit")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    log = SparkLog()
    with log.opened(folder) as handle:
        launched = command.launch(temp_folder, handle, more=[f"-XX:ArchiveClassesAtExit={made}"])
    process = launched.process
    try:
        gateway = launched.gateway()
        SparkContext._gateway, SparkContext._jvm = gateway, gateway.jvm
        session = start(options, wanted, [], log, temp_folder)
        log.take_errors_of(session.sparkContext._accumulatorServer)
        _work(session, lake=len(wanted) > len(settings))
        stop_session(session)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=END_SECONDS)
        Jvm(gateway).end()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    return command


#: what a merge into a lake table and its upkeep have Spark do
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


def _work(session: Any, *, lake: bool) -> None:
    """Do with a session what runs do: parts in Python workers and, with a lake, a merge into a table."""
    for _ in range(2):
        start_workers(session, 2)
    if lake:
        for statement in _STATEMENTS:
            session.sql(statement).collect()


def _lake_settings(settings: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The settings of a lake in this folder; none without Iceberg on the class path."""
    names = [os.path.basename(entry) for entry in settings.get("spark.driver.extraClassPath", "").split(os.pathsep)]
    if not any("iceberg-spark-runtime" in name for name in names):
        return {}
    at = "spark.sql.catalog.training"
    found = {
        "spark.sql.extensions": _EXTENSION,
        at: "org.apache.iceberg.spark.SparkCatalog",
        f"{at}.cache-enabled": "false",
        f"{at}.warehouse": str(folder / "lake"),
    }
    if any("sqlite-jdbc" in name for name in names):
        catalog = f"jdbc:sqlite:{folder / 'catalog.db'}"
        return found | {f"{at}.type": "jdbc", f"{at}.jdbc.schema-version": "V1", f"{at}.uri": catalog}
    return found | {f"{at}.type": "hadoop"}


def _is_accepted(command: Command, made: Path) -> bool:
    """Whether there is an archive, and the same Java accepts it."""
    if not made.is_file():
        return False
    words = command.words([f"-XX:SharedArchiveFile={made}", "-Xshare:on", "-version"])
    nothing = subprocess.DEVNULL
    return subprocess.run(words, stdin=nothing, stdout=nothing, stderr=nothing, check=False).returncode == 0


def _sync(file: Path) -> None:
    """Write it to disk before it gets its name: a power cut could leave half of it."""
    sync(file)
    file.chmod(0o600)


def _default_archives() -> Iterator[Archive]:
    """The archives for runs with the default settings, without a lake and with one."""
    lake = [jars.file_of(package) for package in jars.LAKE_PACKAGES]
    for files in ([], lake):
        if all(file.exists() for file in files):
            yield from _find_archive(all_settings(SparkOptions(), {}, files))


def _find_archive(settings: Mapping[str, str]) -> Iterator[Archive]:
    command = Command.plain(settings, os.environ)
    archive = Archive.of(command) if command is not None else None
    if archive is not None:
        yield archive


def main(words: Sequence[str]) -> int:
    if words:
        given = list(_find_archive(json.loads(words[0])))
        return 0 if given and make(given, wait=False) else 1
    archives = list(_default_archives())
    missing = [archive for archive in archives if archive.file() is None]
    for archive in missing:
        with contextlib.suppress(OSError):
            archive.attempts_file.unlink()  # a user who calls this asks for another attempt
    if missing:
        print(f"make_archive: making {len(missing)} in {missing[0].folder}", file=sys.stderr)
        try:
            made = make(missing, wait=True)
        except OSError as error:
            print(f"make_archive: {error}", file=sys.stderr)
            return 1
        if not made:
            print("make_archive: Java has made no archive that it accepts", file=sys.stderr)
            return 1
    for archive in archives:
        print(archive.file())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
