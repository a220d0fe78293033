"""The demo's folder: one that the demo has made, or none at all. Nothing else is ever written to or removed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from penstock.demo.server import as_unprivileged, unprivileged_user
from penstock.errors import InputError

#: marks a folder as the demo's own
MARKER = ".penstock-demo"
UNTOUCHED = "It was left as it is."


@dataclass(frozen=True)
class Folder:
    """Where everything of one demo lies."""

    path: Path

    @property
    def file(self) -> Path:
        return self.path / "shop.yaml"

    @property
    def store(self) -> Path:
        return self.path / "store.db"

    @property
    def lake(self) -> Path:
        return self.path / "lake"

    @property
    def archive(self) -> Path:
        return self.path / "archive"

    @property
    def report(self) -> Path:
        return self.path / "report"

    @property
    def environment(self) -> Path:
        return self.path / "env.sh"

    @property
    def postgres(self) -> Path:
        """The server's directory; under root it may be a link to one that the server's user can reach."""
        return self.path / "postgres"

    @property
    def is_ours(self) -> bool:
        return (self.path / MARKER).is_file()

    def refuse_foreign(self) -> None:
        """InputError if there is something at this path that the demo has not made."""
        if self.is_ours or not self.path.exists():
            return
        if not self.path.is_dir() or any(self.path.iterdir()):
            raise InputError(
                f"{self.path} is not a folder that the demo has made",
                safe=UNTOUCHED,
                next_step="name another folder: penstock demo FOLDER",
            )

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """While it is open no other demo works in this folder; InputError if one does."""
        with (self.path / MARKER).open("r") as marker:
            try:
                fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(
                    f"a demo is at work in {self.path}",
                    safe=UNTOUCHED,
                    next_step="wait for its end or stop it with Ctrl-C; or name another folder",
                ) from None
            yield

    def make(self) -> bool:
        """Make the folder, if it is not there; whether it was."""
        self.refuse_foreign()
        known = self.is_ours
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if not known:
                (self.path / MARKER).write_text("made by penstock demo; penstock demo --clean removes it\n")
                (self.path / ".gitignore").write_text("*\n")
        except OSError as error:
            raise InputError(
                f"{self.path} cannot be written to: {error.strerror}",
                safe="Nothing was made.",
                next_step="name another folder: penstock demo FOLDER",
            ) from error
        return known

    def begin_anew(self) -> None:
        """Remove what an earlier showing has left, but not its server; put the pipeline file there."""
        for path in (self.lake, self.archive, self.report):
            shutil.rmtree(path, ignore_errors=True)
        for path in self.path.glob("store.db*"):
            path.unlink()
        self.file.write_text(shop("shop.yaml"))

    def server_directory(self) -> Path:
        """The server's directory, made if it is not there, where the server's own user can reach it."""
        known = self.postgres.resolve()
        if known.is_dir():
            return known
        self.postgres.unlink(missing_ok=True)  # a link to a temporary directory that others have swept
        self.postgres.mkdir(mode=0o700)
        if os.geteuid() != 0:
            return known
        owner = unprivileged_user()
        self.path.chmod(self.path.stat().st_mode | 0o011)
        os.chown(self.postgres, owner.pw_uid, owner.pw_gid)
        if _can_write(known):
            return known
        self.postgres.rmdir()
        elsewhere = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
        os.chown(elsewhere, owner.pw_uid, owner.pw_gid)
        self.postgres.symlink_to(elsewhere)
        return elsewhere

    def say_url(self, url: str, path: str | None) -> None:
        """Write the file that gives a shell what it needs; only its owner may read it: there is a password in it."""
        lines = [f"export DATABASE_URL={shlex.quote(url)}"]
        if path is not None:
            lines.append(f'export PATH={shlex.quote(path)}:"$PATH"')
        self.environment.unlink(missing_ok=True)
        self.environment.touch(mode=0o600)
        self.environment.write_text("\n".join([*lines, ""]))

    def remove(self) -> None:
        """Remove it all."""
        elsewhere = self.postgres.resolve()
        shutil.rmtree(elsewhere, ignore_errors=True)
        shutil.rmtree(self.path)


def shop(name: str) -> str:
    """A text that is shipped beside this module."""
    return files("penstock.demo").joinpath(name).read_text(encoding="utf-8")


def _can_write(directory: Path) -> bool:
    asked = [*as_unprivileged(), "test", "-w", str(directory)]
    return subprocess.run(asked, cwd="/", capture_output=True).returncode == 0
