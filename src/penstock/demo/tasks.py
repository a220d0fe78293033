"""What one may ask of the demo: to be shown, to start or stop its server, to remove all of it."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

from penstock.demo import programs, shop
from penstock.demo.acts import Demo, path_to_penstock
from penstock.demo.folder import Folder
from penstock.demo.server import LocalServer
from penstock.demo.stage import Stage, interruptible, near
from penstock.errors import InputError, Interrupted

#: a change for the visitor to make
RETURNED = "UPDATE orders SET status = 'returned' WHERE id <= 500"


def show(path: Path, *, orders: int, keep_running: bool) -> None:
    """The whole demo. At its end, or at a failure or signal, no process is left, unless the server is to be kept."""
    folder = _prepared(path)
    stage = Stage(dict(os.environ))
    with folder.held():
        folder.begin_anew()
        server = shop.server_of(folder, stays=keep_running)
        done = False
        try:
            with interruptible():
                server.stop()  # of an earlier demo that was asked to keep it
                shop.start(folder, server)
                Demo(folder, server, stage, orders=orders).show()
                done = True
        except Interrupted as signal:
            signal.safe = "The demo's server is stopped; no process is left."
            signal.next_step = f"{_demo(folder)} begins anew; {_demo(folder, '--clean')} removes {near(folder.path)}"
            raise
        finally:
            if not (done and keep_running):
                server.stop()
    _where_it_lies(stage, folder, server)
    _what_next(stage, folder, server, running=keep_running)


def serve(path: Path) -> None:
    """Start the server of a demo that was shown, and leave it running."""
    folder = _known(path)
    with folder.held():
        server = shop.server_of(folder, stays=True)
        if server.pid() is None:
            shop.start(folder, server)
            folder.say_url(server.url(shop.DATABASE), path_to_penstock())
    print(f"PostgreSQL runs on port {server.port} (process {server.pid()}).")
    print(f"    source {shlex.quote(near(folder.environment))}    # sets DATABASE_URL")
    print(f"    {_demo(folder, '--stop')}    # stops it")


def stop(path: Path) -> None:
    """Stop the server, if it runs."""
    folder = _known(path)
    with folder.held():
        server = shop.server_of(folder, stays=True)
        running = server.pid()
        server.stop()
    print("PostgreSQL was not running." if running is None else f"PostgreSQL is stopped (process {running}).")


def clean(path: Path) -> None:
    """Stop the server and remove the folder, if it is the demo's."""
    folder = Folder(path.absolute())
    folder.refuse_foreign()
    if not folder.is_ours:
        print(f"There is no demo in {near(folder.path)}: nothing to remove.")
        return
    with folder.held():
        if folder.postgres.resolve().is_dir():
            LocalServer(Path(), folder.postgres.resolve(), port=0, password="").stop()
        folder.remove()
    print(f"Removed {near(folder.path)}.")


def _prepared(path: Path) -> Folder:
    # Settings of libpq, such as PGSSLMODE, are meant for other servers.
    for name in [name for name in os.environ if name.startswith("PG")]:
        del os.environ[name]
    programs.installed()
    folder = Folder(path.absolute())
    if folder.make():
        print(f"{near(folder.path)} is there from an earlier demo: it begins anew.")
    return folder


def _known(path: Path) -> Folder:
    folder = Folder(path.absolute())
    folder.refuse_foreign()
    if not folder.postgres.resolve().is_dir():
        raise InputError(
            f"there is no demo in {near(folder.path)}",
            safe="",
            next_step=f"{_demo(folder)} shows one; or name the folder of another: penstock demo FOLDER --server",
        )
    return folder


def _where_it_lies(stage: Stage, folder: Folder, server: LocalServer) -> None:
    stage.act(8, "Where everything lies, and what to try next")
    places = {
        folder.file: "the pipeline file",
        folder.store: "the store: how far each stream is",
        folder.lake: "the lake: Iceberg tables; their catalog is catalog.db",
        folder.archive: "Parquet files, every version; a name begins with its slice's number",
        folder.report: "Parquet files, from the lake",
        server.directory if folder.postgres.is_symlink() else folder.postgres: "PostgreSQL; its log is server.log",
        folder.environment: "sets DATABASE_URL for a shell, and finds penstock",
    }
    _columns(stage, {near(place): what for place, what in places.items()})


def _what_next(stage: Stage, folder: Folder, server: LocalServer, *, running: bool) -> None:
    file, psql = near(folder.file), "psql" if shutil.which("psql") else near(server.programs / "psql")
    file, psql = shlex.quote(file), shlex.quote(psql)
    stage.pause()
    if running:
        stage.say(f"PostgreSQL still runs (process {server.pid()}).")
    else:
        stage.say("PostgreSQL is stopped and no process is left; the second line starts it again.")
    stage.show(f"source {shlex.quote(near(folder.environment))}")
    if not running:
        stage.show(_demo(folder, "--server"))
    stage.show(f'{psql} "$DATABASE_URL" -c "{RETURNED}"')
    lines = {
        f"penstock plan {file} archive": "# what the next run would move",
        f"penstock run {file} archive": "# the 500 rows, and no others",
        f"penstock status {file}": "# how far each stream is",
        f"penstock state show {file} --pipeline archive --stream orders": "# its mark in full",
        _demo(folder, "--clean"): "# stops PostgreSQL and removes everything",
    }
    _columns(stage, lines)


def _columns(stage: Stage, lines: dict[str, str]) -> None:
    wide = max(len(left) for left in lines)
    stage.show("\n".join(f"{left:<{wide}}  {right}" for left, right in lines.items()))


def _demo(folder: Folder, *options: str) -> str:
    named = [] if near(folder.path) == "demo-out" else [near(folder.path)]
    return shlex.join(["penstock", "demo", *named, *options])
