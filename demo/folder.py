"""The demo's folder. The demo writes to and deletes only a folder that it has created."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.harness.postgres import unprivileged_user

from penstock.errors import InputError

HERE = Path(__file__).parent

#: marks a folder as the demo's own
MARKER = ".penstock-demo"
UNTOUCHED = "Nothing in it was changed."


class Folder:
    """The paths of one demo."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path / "shop.yaml"
        self.store = path / "store.db"
        self.lake = path / "lake"
        self.archive = path / "archive"
        self.report = path / "report"
        self.gallery = path / "gallery"
        self.environment = path / "env.sh"
        #: the server's directory; under root a link to one that the server's user can access
        self.postgres = path / "postgres"

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
                next_step="choose another folder: script/demo FOLDER",
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
                (self.path / MARKER).write_text("created by script/demo; script/demo --clean removes it\n")
                (self.path / ".gitignore").write_text("*\n")
        except OSError as error:
            raise InputError(
                f"{self.path} cannot be written to: {error.strerror}",
                safe="Nothing was created.",
                next_step="choose another folder: script/demo FOLDER",
            ) from error
        return known

    def clear(self) -> None:
        """Delete the output of an earlier demo, but not its server, and write the pipeline file."""
        for path in (self.lake, self.archive, self.report, self.gallery):
            shutil.rmtree(path, ignore_errors=True)
        for path in self.path.glob("store.db*"):
            path.unlink()
        self.file.write_text((HERE / "shop.yaml").read_text())

    def server_directory(self) -> Path:
        """The server's directory, created if necessary where the server's user can access it."""
        known = self.postgres.resolve()
        if known.is_dir():
            return known
        self.postgres.unlink(missing_ok=True)  # a link to a temporary directory that was deleted
        if os.geteuid() != 0:
            self.postgres.mkdir(mode=0o700)
            return known
        # The server runs as another user, who may not reach this folder.
        elsewhere = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
        os.chown(elsewhere, (owner := unprivileged_user()).pw_uid, owner.pw_gid)
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
