"""Which archive fits a JVM, when it is used, and when it is made; without a JVM."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from penstock.links.spark import archive as archives
from penstock.links.spark import make_archive
from penstock.links.spark.archive import Archive, make_folder, remove_oldest
from penstock.links.spark.launch import Command

TOP = Path(__file__).parents[2]
OPTIONS = "spark.driver.extraJavaOptions"
DAY = 24 * 3600


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for archives."""
    path = tmp_path / "archives"
    monkeypatch.setenv(archives.VARIABLE, str(path))
    monkeypatch.delenv(archives.TRAINING_VARIABLE, raising=False)
    for name in archives._OPTION_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    make_folder(path)
    return path


@pytest.fixture
def jars(tmp_path: Path) -> list[Path]:
    found = [tmp_path / "a.jar", tmp_path / "b.jar"]
    for jar in found:
        jar.write_text("classes")
    return found


def archive_of(jars: list[Path], **settings: str) -> Archive | None:
    given = {
        "spark.driver.memory": "1g",
        "spark.driver.extraClassPath": os.pathsep.join(map(str, jars)),
        OPTIONS: '-XX:+UseSerialGC "-Djava.io.tmpdir=/tmp/a b"',
    }
    command = Command.plain(given | settings, os.environ)
    assert command is not None
    return Archive.of(command)


def there(archive: Archive) -> Path:
    """Put something in the place of the archive."""
    file = archive.folder / archive.name_for(len("classes"))
    file.write_text("classes")
    file.chmod(0o600)
    return file


def some_archive(jars: list[Path]) -> Archive:
    found = archive_of(jars)
    assert found is not None
    return found


# ---------------------------------------------------------------- which one fits


def test_the_key_stays_while_nothing_changes_but_the_temporary_folder(folder: Path, jars: list[Path]) -> None:
    once = some_archive(jars)
    again = archive_of(jars, **{OPTIONS: '-XX:+UseSerialGC "-Djava.io.tmpdir=/tmp/other"', "spark.app.name": "x"})
    assert again is not None
    assert (once.key, once.folder) == (again.key, folder)


def test_a_training_finds_the_same_key(folder: Path, jars: list[Path]) -> None:
    once = some_archive(jars)
    command = Command.plain(json.loads(json.dumps(once.settings)), os.environ)
    assert command is not None
    assert Archive.of(command) == once


@pytest.mark.usefixtures("folder")
def test_the_key_changes_with_java_its_options_and_the_class_path(
    jars: list[Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keys = [some_archive(jars).key]

    def differs(found: Archive | None) -> None:
        assert found is not None
        assert found.key not in keys
        keys.append(found.key)

    differs(archive_of(jars[::-1]))
    differs(archive_of(jars[:1]))
    differs(archive_of(jars, **{OPTIONS: "-XX:+UseParallelGC"}))
    differs(archive_of(jars, **{"spark.driver.memory": "2g"}))
    os.utime(jars[0], (1, 1))
    differs(archive_of(jars))
    jars[0].write_text("other classes")
    os.utime(jars[0], (1, 1))
    differs(archive_of(jars))
    with monkeypatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", "-XX:MaxRAMPercentage=50")
        differs(archive_of(jars))
    with monkeypatch.context() as patch:
        patch.setattr(archives, "FORMAT", 99)
        differs(archive_of(jars))
    (tmp_path / "java" / "bin").mkdir(parents=True)
    java = tmp_path / "java" / "bin" / "java"
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    differs(archive_of(jars))
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="21"')
    differs(archive_of(jars))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "options",
    ["-Xshare:off", "-XX:SharedArchiveFile=/mine.jsa", "-javaagent:/agent.jar", "-agentlib:jdwp=server=y",
     "-Xlog:gc:file=/gc.log", "-Dcom.sun.management.jmxremote.port=1", "-XX:OnOutOfMemoryError=reboot now"],
)  # fmt: skip
def test_options_that_do_something_of_their_own_go_without_an_archive(
    options: str, jars: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert archive_of(jars, **{OPTIONS: f'"{options}"'}) is None
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f'"{options}"')
    assert archive_of(jars) is None


def test_a_class_path_that_is_not_there_has_no_archive(folder: Path, jars: list[Path]) -> None:
    assert archive_of([*jars, folder / "missing.jar"]) is None


def test_the_folder_is_among_the_caches_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(archives.VARIABLE, "off")
    assert archives.folder() is None
    monkeypatch.delenv(archives.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert archives.folder() == tmp_path / "penstock" / "archives"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert archives.folder() == Path.home() / ".cache" / "penstock" / "archives"


# ---------------------------------------------------------------- when it is used


def test_it_is_used_once_it_is_there(folder: Path, jars: list[Path]) -> None:
    archive = some_archive(jars)
    assert archive.options(Path("/scratch")) == []
    file = there(archive)
    assert file.parent == folder
    assert archive.options(Path("/scratch"))[0] == f"-XX:SharedArchiveFile={file}"
    file.write_text("cut")
    assert archive.options(Path("/scratch")) == [], "Java dies of one that was cut short"
    assert archive.is_wanted()


def test_one_that_others_could_have_written_is_not_used(
    folder: Path, jars: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = some_archive(jars)
    file = there(archive)
    for mode in (0o620, 0o602):
        file.chmod(mode)
        assert archive.options(Path("/scratch")) == []
    file.chmod(0o600)
    assert archive.options(Path("/scratch")) != []
    for mode in (0o770, 0o707):
        folder.chmod(mode)
        assert archive.options(Path("/scratch")) == []
        with pytest.raises(PermissionError):
            make_folder(folder)
    folder.chmod(0o700)
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda *_: False)
        assert archive.options(Path("/scratch")) == [], "unreadable"
    file.rename(folder / "elsewhere")
    file.symlink_to(folder / "elsewhere")
    assert archive.options(Path("/scratch")) == [], "a link may lead anywhere"


def test_one_of_another_user_is_not_used(folder: Path, jars: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    archive = some_archive(jars)
    there(archive)
    real = Path.lstat
    for owner, used in ((os.geteuid() + 1, False), (0, True), (os.geteuid(), True)):

        def owned(path: Path, owner: int = owner) -> os.stat_result:
            found = list(real(path))
            found[4] = owner
            return os.stat_result(found)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "lstat", owned)
            assert bool(archive.options(Path("/scratch"))) is used, owner


def test_a_use_is_noted_once_a_day(folder: Path, jars: list[Path]) -> None:
    archive = some_archive(jars)
    file = there(archive)
    for age, noted in ((DAY / 2, False), (2 * DAY, True)):
        before = time.time() - age
        os.utime(file, (before, before))
        archive.options(Path("/scratch"))
        assert (file.stat().st_mtime > time.time() - 60) is noted


# ---------------------------------------------------------------- when it is made


def test_failed_attempts_are_repeated_after_a_day_and_not_for_ever(folder: Path, jars: list[Path]) -> None:
    archive = some_archive(jars)
    assert archive.is_wanted()
    for count in range(1, archives.ATTEMPTS.tries + 1):
        archive.note_attempt()
        assert not archive.is_wanted()
        yesterday = time.time() - 1.1 * DAY
        os.utime(archive.attempts_file, (yesterday, yesterday))
        assert archive.is_wanted() is (count < archives.ATTEMPTS.tries)
    archive.attempts_file.unlink()
    there(archive)
    assert not archive.is_wanted()


@pytest.mark.usefixtures("folder")
def test_none_is_made_where_training_is_off(jars: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(archives.TRAINING_VARIABLE, "off")
    assert not some_archive(jars).is_wanted()


def test_an_attempt_that_fails_is_counted_and_leaves_nothing(
    folder: Path, jars: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = some_archive(jars)
    (folder / "making-killed").mkdir()
    (folder / "making-killed" / "archive").write_text("half")

    def fail(settings: Mapping[str, str], made: Path, place: Path) -> Command:
        assert archive.attempts_file.read_text() == "1", "one that is killed counts too"
        assert [path.name for path in folder.glob("making-*")] == [place.name], "leftovers are swept"
        made.write_text("half")
        raise RuntimeError("the JVM has died")

    monkeypatch.setattr(make_archive, "_train", fail)
    with pytest.raises(RuntimeError):
        make_archive.make([archive], wait=False)
    assert sorted(path.name for path in folder.iterdir()) == [archive.attempts_file.name, "lock"]
    assert not make_archive.make([archive], wait=False)


def test_one_is_made_at_a_time(folder: Path, jars: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_archive, "_train", lambda *_: pytest.fail("another process is at it"))
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not make_archive.make([some_archive(jars)], wait=False)
    assert not some_archive(jars).attempts_file.exists()


def test_a_folder_that_cannot_be_made_changes_nothing_for_the_run(
    tmp_path: Path, jars: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(archives.VARIABLE, str(tmp_path / "file" / "archives"))
    archive = some_archive(jars)
    assert archive.options(Path("/scratch")) == []
    archive.make_in_background()
    done = subprocess.run(
        [sys.executable, "-m", archives.MAKER_MODULE, json.dumps(archive.settings)], capture_output=True, check=False
    )
    assert done.returncode == 1


def test_the_archives_that_were_used_last_are_kept(folder: Path) -> None:
    for age in range(archives.MOST_ARCHIVES + 2):
        (folder / f"{age}.jsa").touch()
        os.utime(folder / f"{age}.jsa", (1_000_000 - age, 1_000_000 - age))
    (folder / "old.attempts").touch()
    os.utime(folder / "old.attempts", (1, 1))
    (folder / "new.attempts").touch()
    remove_oldest(folder)
    kept = [f"{age}.jsa" for age in range(archives.MOST_ARCHIVES)]
    assert sorted(path.name for path in folder.iterdir()) == [*kept, "new.attempts"]


@pytest.mark.usefixtures("folder")
def test_the_training_is_in_nobodys_way(jars: list[Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A shell that reads the run's output sees its end at once, and Ctrl-C in the terminal does not reach it."""
    told = tmp_path / "told.json"
    monkeypatch.setenv("PYTHONPATH", str(TOP))
    monkeypatch.setenv("FAKE_MAKE_ARCHIVE", str(told))
    run = (
        "import json, sys; from pathlib import Path; from penstock.links.spark import archive\n"
        "archive.MAKER_MODULE = 'tests.spark.fake_make_archive'\n"
        "archive.Archive(Path(sys.argv[1]), 'key', {'spark.driver.memory': '1g'}).make_in_background()\n"
    )
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", run, str(tmp_path / "archives")], capture_output=True, text=True, check=True, timeout=30
    )
    assert (done.stdout, done.stderr) == ("", "")
    while not told.exists():
        assert time.monotonic() - begun < 30
        time.sleep(0.05)
    said = json.loads(told.read_text())
    try:
        assert said["files"] == dict.fromkeys("012", "/dev/null")
        assert said["session"] != os.getsid(0)
        assert said["folder"] == "/"
        assert said["settings"] == {"spark.driver.memory": "1g"}
    finally:
        os.kill(said["pid"], signal.SIGKILL)
