"""The demo's folder. The demo writes to and deletes only a folder that it has created."""

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
UNTOUCHED = "Nothing in it was changed."


@dataclass(frozen=True)
class Folder:
    """The paths of one demo."""

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
        """The server's directory; under root it may be a link to one that the server's user can access."""
        return self.path / "postgres"

    @property
    def is_ours(self) -> bool:
        return (self.path / MARKER).is_file()

    def refuse_foreign(self) -> None:
        """Raise InputError if something exists at this path that the demo did not create."""
        if self.is_ours or not self.path.exists():
            return
        if not self.path.is_dir() or any(self.path.iterdir()):
            raise InputError(
                f"{self.path} exists and was not created by the demo",
                safe=UNTOUCHED,
                next_step="choose another folder: penstock demo FOLDER",
            )

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder against other demos; InputError if one is running in it."""
        with (self.path / MARKER).open("r") as marker:
            try:
                fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(
                    f"a demo is running in {self.path}",
                    safe=UNTOUCHED,
                    next_step="wait for it to end, stop it with Ctrl-C, or choose another folder",
                ) from None
            yield

    def make(self) -> bool:
        """Create the folder if it does not exist, and return whether it did."""
        self.refuse_foreign()
        known = self.is_ours
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if not known:
                (self.path / MARKER).write_text("created by penstock demo; penstock demo --clean removes it\n")
                (self.path / ".gitignore").write_text("*\n")
        except OSError as error:
            raise InputError(
                f"{self.path} cannot be written to: {error.strerror}",
                safe="Nothing was created.",
                next_step="choose another folder: penstock demo FOLDER",
            ) from error
        return known

    def clear(self) -> None:
        """Delete the output of an earlier demo, but not its server, and write the pipeline file."""
        for path in (self.lake, self.archive, self.report):
            shutil.rmtree(path, ignore_errors=True)
        for path in self.path.glob("store.db*"):
            path.unlink()
        self.file.write_text(shop("shop.yaml"))

    def server_directory(self) -> Path:
        """The server's directory, created if necessary where the server's user can access it."""
        known = self.postgres.resolve()
        if known.is_dir():
            return known
        self.postgres.unlink(missing_ok=True)  # a link to a temporary directory that was deleted
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

    def write_environment(self, url: str, path: str | None) -> None:
        """Write the file with the environment for a shell; only its owner may read it, as it contains a password."""
        lines = [f"export DATABASE_URL={shlex.quote(url)}"]
        if path is not None:
            lines.append(f'export PATH={shlex.quote(path)}:"$PATH"')
        self.environment.unlink(missing_ok=True)
        self.environment.touch(mode=0o600)
        self.environment.write_text("\n".join([*lines, ""]))

    def remove(self) -> None:
        """Delete the folder and the server's directory."""
        elsewhere = self.postgres.resolve()
        shutil.rmtree(elsewhere, ignore_errors=True)
        shutil.rmtree(self.path)


def shop(name: str) -> str:
    """The text of a file in this package."""
    return files("penstock.demo").joinpath(name).read_text(encoding="utf-8")


def _can_write(directory: Path) -> bool:
    asked = [*as_unprivileged(), "test", "-w", str(directory)]
    return subprocess.run(asked, cwd="/", capture_output=True).returncode == 0
