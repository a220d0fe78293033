"""The tasks of `penstock demo`: show the demo, start or stop its server, remove everything."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

from penstock.demo import programs, shop
from penstock.demo.acts import Demo, path_to_penstock
from penstock.demo.folder import Folder
from penstock.demo.server import LocalServer
from penstock.demo.stage import Stage, interruptible, short_path
from penstock.errors import InputError, Interrupted

#: the change that the demo suggests to the user
SUGGESTED_CHANGE = "UPDATE orders SET status = 'returned' WHERE id <= 500"


def show(path: Path, *, orders: int, keep_running: bool) -> None:
    """Run the whole demo. Leaves no process running, even after a failure or signal, except a server to be kept."""
    folder = _prepare_folder(path)
    stage = Stage(dict(os.environ))
    with folder.lock():
        folder.clear()
        server = shop.server_of(folder, stays=keep_running)
        done = False
        try:
            with interruptible():
                server.stop()  # of an earlier demo with --keep-running
                shop.start(folder, server)
                Demo(folder, server, stage, orders=orders).show()
                done = True
        except Interrupted as signal:
            signal.safe = "The demo's server is stopped; no process is left running."
            signal.next_step = (
                f"{_demo(folder)} starts again; {_demo(folder, '--clean')} removes {short_path(folder.path)}"
            )
            raise
        finally:
            if not (done and keep_running):
                server.stop()
    _print_places(stage, folder, server)
    _print_next_steps(stage, folder, server, running=keep_running)


def serve(path: Path) -> None:
    """Restart the server of an earlier demo, and leave it running."""
    folder = _existing_folder(path)
    with folder.lock():
        server = shop.server_of(folder, stays=True)
        if server.pid() is None:
            shop.start(folder, server)
            folder.write_environment(server.url(shop.DATABASE), path_to_penstock())
    print(f"PostgreSQL is running on port {server.port} (process {server.pid()}).")
    print(f"    source {shlex.quote(short_path(folder.environment))}    # sets DATABASE_URL")
    print(f"    {_demo(folder, '--stop')}    # stops it")


def stop(path: Path) -> None:
    """Stop the server if it is running."""
    folder = _existing_folder(path)
    with folder.lock():
        server = shop.server_of(folder, stays=True)
        running = server.pid()
        server.stop()
    print("PostgreSQL was not running." if running is None else f"PostgreSQL was stopped (process {running}).")


def clean(path: Path) -> None:
    """Stop the server and delete the folder if the demo created it."""
    folder = Folder(path.absolute())
    folder.refuse_foreign()
    if not folder.is_ours:
        print(f"There is no demo in {short_path(folder.path)}: nothing to remove.")
        return
    with folder.lock():
        if folder.postgres.resolve().is_dir():
            LocalServer(Path(), folder.postgres.resolve(), port=0, password="").stop()
        folder.remove()
    print(f"Removed {short_path(folder.path)}.")


def _prepare_folder(path: Path) -> Folder:
    # Variables of libpq, such as PGSSLMODE, are for other servers.
    for name in [name for name in os.environ if name.startswith("PG")]:
        del os.environ[name]
    programs.installed()
    folder = Folder(path.absolute())
    if folder.make():
        print(f"{short_path(folder.path)} exists from an earlier demo: its contents are replaced.")
    return folder


def _existing_folder(path: Path) -> Folder:
    folder = Folder(path.absolute())
    folder.refuse_foreign()
    if not folder.postgres.resolve().is_dir():
        raise InputError(
            f"there is no demo in {short_path(folder.path)}",
            safe="",
            next_step=f"run {_demo(folder)} first, or name the folder of another demo: penstock demo FOLDER --server",
        )
    return folder


def _print_places(stage: Stage, folder: Folder, server: LocalServer) -> None:
    stage.act(8, "The files of the demo, and what to try next")
    places = {
        folder.file: "the pipeline file",
        folder.store: "the store: how far each stream is",
        folder.lake: "the lake: Iceberg tables; their catalog is catalog.db",
        folder.archive: "Parquet files with every version; each name starts with the slice's number",
        folder.report: "Parquet files, from the lake",
        server.directory if folder.postgres.is_symlink() else folder.postgres: "PostgreSQL; its log is server.log",
        folder.environment: "sets DATABASE_URL and PATH for a shell",
    }
    _columns(stage, {short_path(place): what for place, what in places.items()})


def _print_next_steps(stage: Stage, folder: Folder, server: LocalServer, *, running: bool) -> None:
    file, psql = short_path(folder.file), "psql" if shutil.which("psql") else short_path(server.programs / "psql")
    file, psql = shlex.quote(file), shlex.quote(psql)
    stage.pause()
    if running:
        stage.print_text(f"PostgreSQL is still running (process {server.pid()}).")
    else:
        stage.print_text("PostgreSQL is stopped; the second line restarts it.")
    stage.show(f"source {shlex.quote(short_path(folder.environment))}")
    if not running:
        stage.show(_demo(folder, "--server"))
    stage.show(f'{psql} "$DATABASE_URL" -c "{SUGGESTED_CHANGE}"')
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
    named = [] if short_path(folder.path) == "demo-out" else [short_path(folder.path)]
    return shlex.join(["penstock", "demo", *named, *options])
