"""Java's archive of the classes that Spark loads: a JVM that maps it starts in about half the time.

A run that ends cleanly has a missing archive made in the background (`make_archive`); later runs find it by its key.
The folder is PENSTOCK_ARCHIVES, or else `penstock/archives` in this user's cache; `PENSTOCK_ARCHIVES=off` means none.
With `PENSTOCK_TRAINING=off` archives are used, but none is made.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shlex
import stat
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.retry import Backoff, Retry
from penstock.links.cache import cache_folder

if TYPE_CHECKING:
    from penstock.links.spark.launch import Command


#: names the folder, or is `off`
VARIABLE = "PENSTOCK_ARCHIVES"
#: `off`: no archive is made
TRAINING_VARIABLE = "PENSTOCK_TRAINING"
OFF = "off"
#: raised whenever `make_archive` loads other classes
FORMAT = 1
SUFFIX = ".jsa"
#: how many archives are kept; each is about 100 MB
MOST_ARCHIVES = 4
#: the priority of the process that makes an archive: a tenth of the usual share of a busy processor
MAKER_NICENESS = 10
#: to make one archive: at most one a day
ATTEMPTS = Retry(5, Backoff(24 * 3600.0, 24 * 3600.0))
#: seconds after which the use of an archive is recorded again
_USE_SECONDS = 24 * 3600.0
#: options of Java that write no file, open no port and load no agent; others are used without an archive
_HARMLESS_OPTION = re.compile(r"-XX:[+-]?\w+(=\w+)?|-X(mx|ms|mn|ss)\w+|-D(?!com\.sun\.management|java\.rmi).*")
#: variables from which Java takes more options
_OPTION_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
#: settings that decide on the JVM and its class path; making an archive needs no others
_JVM_SETTINGS = ("spark.driver.memory", "spark.driver.extraClassPath")
_TEMP_OPTION = "-Djava.io.tmpdir="
#: the program that makes archives
MAKER_MODULE = "penstock.links.spark.make_archive"


def folder() -> Path | None:
    """Where archives are kept; None: there are to be none."""
    named = os.environ.get(VARIABLE)
    if named == OFF:
        return None
    if named:
        return Path(named).absolute()
    try:
        return cache_folder() / "archives"
    except RuntimeError:
        return None  # a user without a home


@dataclass(frozen=True)
class Archive:
    """The archive that fits a command; perhaps it is still to be made."""

    folder: Path
    key: str
    #: the settings that start the same JVM
    settings: Mapping[str, str]

    @classmethod
    def of(cls, command: Command) -> Archive | None:
        """The archive for a command; None: it is used without one."""
        place = folder()
        if place is None:
            return None
        own = [word for word in shlex.split(command.settings.get(_JAVA_OPTIONS, "")) if not _names_temp_folder(word)]
        words = [word for name in _OPTION_VARIABLES for word in shlex.split(os.environ.get(name, ""))]
        if not all(_HARMLESS_OPTION.fullmatch(word) for word in own + words):
            return None
        try:
            described = {
                "format": FORMAT,
                "java": _describe_java(command.java),
                "options": [word for word in command.options if not _names_temp_folder(word)],
                "variables": words,
                "class path": [_describe_file(Path(entry)) for entry in command.class_path],
            }
        except OSError:
            return None  # something on the class path is not there
        settings = {key: command.settings[key] for key in _JVM_SETTINGS if key in command.settings}
        settings[_JAVA_OPTIONS] = shlex.join(own)
        return cls(place, hashlib.sha256(json.dumps(described).encode()).hexdigest()[:32], settings)

    def file(self) -> Path | None:
        """The archive, if it is there and whole: its size is in its name, since Java dies of one that was cut short."""
        for found in self.folder.glob(f"{self.key}-*{SUFFIX}"):
            with contextlib.suppress(OSError):
                if found.name == self.name_for(found.lstat().st_size):
                    return found
        return None

    def name_for(self, size: int) -> str:
        """The name of the archive if it has this size."""
        return f"{self.key}-{size}{SUFFIX}"

    @property
    def attempts_file(self) -> Path:
        return self.folder / f"{self.key}.attempts"

    def options(self, temp_folder: Path) -> list[str]:
        """Options with which a JVM maps the archive, and goes on without a word if it cannot; none if it is not there.

        The code in it is run: so it must be this user's, or the administrator's, and nobody else's to write. A JVM that
        dies of it leaves its report in `temp_folder`.
        """
        file = self.file()
        try:
            if file is None:
                return []
            found = file.lstat()
            safe = _is_safe(self.folder.stat()) and _is_safe(found) and stat.S_ISREG(found.st_mode)
        except OSError:
            return []
        if not safe or not os.access(file, os.R_OK):
            return []
        if time.time() - found.st_mtime > _USE_SECONDS:
            with contextlib.suppress(OSError):  # an administrator's, say
                os.utime(file)  # the oldest are removed first
        quiet = ["-Xlog:disable", "-Xlog:all=error:stderr", f"-XX:ErrorFile={temp_folder}/hs_err.log"]
        return [f"-XX:SharedArchiveFile={file}", "-Xshare:auto", *quiet]

    def remove(self) -> None:
        """Remove an archive with which a JVM has died; the attempt counts as failed."""
        with contextlib.suppress(OSError):
            for file in self.folder.glob(f"{self.key}-*{SUFFIX}"):
                file.unlink(missing_ok=True)
            self.note_attempt()

    def is_wanted(self) -> bool:
        """Whether it is not there and may be made now."""
        if os.environ.get(TRAINING_VARIABLE) == OFF or self.file() is not None:
            return False
        count, last = self._attempts()
        return ATTEMPTS.is_due(count, time.time() - last)

    def note_attempt(self) -> None:
        """Count an attempt, before it begins: one that is killed counts too."""
        count, _ = self._attempts()
        self.attempts_file.write_text(str(count + 1))

    def _attempts(self) -> tuple[int, float]:
        """How many attempts have failed, and when the last one began."""
        try:
            return int(self.attempts_file.read_text()), self.attempts_file.stat().st_mtime
        except FileNotFoundError:
            return 0, 0.0
        except (OSError, ValueError):
            return ATTEMPTS.tries, 0.0

    def make_in_background(self) -> None:
        """Have it made, if it is wanted, by a process of its own that nobody waits for and no terminal reaches."""
        if not self.is_wanted():
            return
        # A shell starts it and ends: so it is no child of ours, and none that we would have to wait for.
        background = f'nice -n {MAKER_NICENESS} "$0" "$@" &'
        command = ["/bin/sh", "-c", background, sys.executable, "-P", "-m", MAKER_MODULE, json.dumps(self.settings)]
        nothing = subprocess.DEVNULL
        with contextlib.suppress(OSError):  # no process to be had: the run itself is done
            subprocess.run(
                command, stdin=nothing, stdout=nothing, stderr=nothing, cwd="/", start_new_session=True, check=False
            )


def make_folder(path: Path) -> None:
    """Make the folder, which only its owner can enter. OSError if it cannot be made, or if others can write in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    if not _is_safe(path.stat()):
        raise PermissionError(f"{path} belongs to another user, or other users can write in it")


def remove_oldest(path: Path) -> None:
    """Remove all but the archives that were used last, with the notes about attempts that nobody needs any more."""
    found = sorted(path.glob(f"*{SUFFIX}"), key=lambda file: file.stat().st_mtime, reverse=True)
    for file in found[MOST_ARCHIVES:]:
        file.unlink(missing_ok=True)
    for note in path.glob("*.attempts"):
        if time.time() - note.stat().st_mtime > 30 * ATTEMPTS.backoff.longest_seconds:
            note.unlink(missing_ok=True)


def _is_safe(found: os.stat_result) -> bool:
    """Whether only this user or the administrator can have written it."""
    return found.st_uid in (os.geteuid(), 0) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _names_temp_folder(word: str) -> bool:
    """Whether an option names the folder for temporary files, another one for every start."""
    return word.startswith(_TEMP_OPTION)


def _describe_java(java: Path) -> list[object]:
    """Which Java it is: its program, its library and the release that it says it is."""
    program = java.resolve()
    home = program.parent.parent
    files = [file for file in (program, home / "lib" / "server" / "libjvm.so") if file.exists()]
    with contextlib.suppress(OSError):
        return [*map(_describe_file, files), (home / "release").read_text(errors="replace")]
    return [*map(_describe_file, files)]


def _describe_file(path: Path) -> list[object]:
    found = path.stat()
    return [str(path), found.st_size, found.st_mtime_ns]
