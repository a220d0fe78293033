"""`script/demo`: shows the demo, starts or stops its server, removes everything."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path
from typing import Annotated

import typer
from tests.harness.postgres import LocalServer

from demo import shop
from demo.acts import Demo, path_to_penstock
from demo.folder import Folder
from demo.stage import Stage, interruptible, short_path
from penstock.cli.shared.error_report import report_errors
from penstock.errors import InputError, Interrupted

#: the change that the demo suggests to the user
SUGGESTED_CHANGE = "UPDATE orders SET status = 'returned' WHERE id <= 500"


def demo(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="The folder for all files of the demo.")] = "demo-out",
    orders: Annotated[
        int, typer.Option("--orders", metavar="N", min=16000, help="Number of orders in the shop at the start.")
    ] = 40000,
    keep_running: Annotated[
        bool, typer.Option("--keep-running", help="Leave the PostgreSQL server running at the end.")
    ] = False,
    server: Annotated[
        bool, typer.Option("--server", help="Only restart the PostgreSQL server of an earlier demo.")
    ] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Only stop that server.")] = False,
    clean: Annotated[bool, typer.Option("--clean", help="Only stop that server and remove FOLDER.")] = False,
) -> None:
    """Show penstock at work on its own PostgreSQL server. Takes about two minutes.

    The demo syncs a small shop into a lake and into files while its rows change. It kills a run with SIGKILL and
    resumes it. A delete and a fan-out arrive in a state table. Source and sinks are compared by checksum; the exit code
    is 1 if they differ.

    FOLDER must not exist, be empty, or belong to an earlier demo. The server listens only on 127.0.0.1 and has its own
    password.
    """
    if sum((keep_running, server, stop, clean)) > 1:
        raise typer.BadParameter("choose one of --keep-running, --server, --stop and --clean")
    with report_errors(folder):
        chosen = Folder(Path(folder).absolute())
        chosen.refuse_foreign()
        if clean:
            remove(chosen)
        elif stop:
            stop_server(chosen)
        elif server:
            start_server(chosen)
        else:
            show(chosen, orders=orders, keep_running=keep_running)


def show(folder: Folder, *, orders: int, keep_running: bool) -> None:
    """Run the whole demo. Leaves no process running, even after a failure or signal, except a server to be kept."""
    # Variables of libpq, such as PGSSLMODE, are for other servers.
    for name in [name for name in os.environ if name.startswith("PG")]:
        del os.environ[name]
    if folder.make():
        print(f"{short_path(folder.path)} exists from an earlier demo: its contents are replaced.")
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
            signal.next_step = f"{_again(folder)} starts again; {_again(folder, '--clean')} removes the folder"
            raise
        finally:
            if not (done and keep_running):
                server.stop()
    _print_next_steps(stage, folder, server, running=keep_running)


def start_server(folder: Folder) -> None:
    """Restart the server of an earlier demo, and leave it running."""
    server = _existing_server(folder)
    with folder.lock():
        if server.pid() is None:
            shop.start(folder, server)
            folder.write_environment(server.url(shop.DATABASE), path_to_penstock())
    print(f"PostgreSQL is running on port {server.port} (process {server.pid()}).")
    print(f"    source {shlex.quote(short_path(folder.environment))}    # sets DATABASE_URL")
    print(f"    {_again(folder, '--stop')}    # stops it")


def stop_server(folder: Folder) -> None:
    """Stop the server if it is running."""
    server = _existing_server(folder)
    with folder.lock():
        running = server.pid()
        server.stop()
    print("PostgreSQL was not running." if running is None else f"PostgreSQL was stopped (process {running}).")


def remove(folder: Folder) -> None:
    """Stop the server and delete the folder if the demo created it."""
    if not folder.is_ours:
        print(f"There is no demo in {short_path(folder.path)}: nothing to remove.")
        return
    with folder.lock():
        if folder.postgres.resolve().is_dir():
            LocalServer(Path(), folder.postgres.resolve(), port=0, password="").stop()
        folder.remove()
    print(f"Removed {short_path(folder.path)}.")


def _existing_server(folder: Folder) -> LocalServer:
    if not folder.postgres.resolve().is_dir():
        raise InputError(
            f"there is no demo in {short_path(folder.path)}",
            safe="",
            next_step=f"run {_again(folder)} first, or name the folder of another demo: script/demo FOLDER --server",
        )
    return shop.server_of(folder, stays=True)


def _print_next_steps(stage: Stage, folder: Folder, server: LocalServer, *, running: bool) -> None:
    stage.act(9, "What to try next")
    postgres = short_path(server.directory if folder.postgres.is_symlink() else folder.postgres)
    stage.print_text(f"Everything is in {short_path(folder.path)}; PostgreSQL and its server.log are in {postgres}.")
    file, psql = short_path(folder.file), "psql" if shutil.which("psql") else short_path(server.programs / "psql")
    file, psql = shlex.quote(file), shlex.quote(psql)
    if running:
        stage.print_text(f"PostgreSQL is still running (process {server.pid()}).")
    else:
        stage.print_text("PostgreSQL is stopped; the second line restarts it.")
    stage.show(f"source {shlex.quote(short_path(folder.environment))}")
    if not running:
        stage.show(_again(folder, "--server"))
    stage.show(f'{psql} "$DATABASE_URL" -c "{SUGGESTED_CHANGE}"')
    stage.show_columns(
        {
            f"penstock plan {file} archive": "# what the next run would move",
            f"penstock run {file} archive": "# the 500 rows, and no others",
            _again(folder, "--clean"): "# stops PostgreSQL and removes everything",
        }
    )


def _again(folder: Folder, *options: str) -> str:
    script = short_path(Path(__file__).parents[1] / "script" / "demo")
    named = [] if short_path(folder.path) == "demo-out" else [short_path(folder.path)]
    return shlex.join([script, *named, *options])


if __name__ == "__main__":
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command()(demo)
    app(prog_name="script/demo")
