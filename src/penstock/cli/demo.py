"""`penstock demo`: shows penstock at work in a folder of its own."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.shared.error_report import report_errors


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

    \b
    Examples:
      penstock demo
      penstock demo --keep-running      leave the server running for further tries
      penstock demo --server            restart it later; --stop stops it
      penstock demo --clean             remove everything

    The demo syncs a small shop into a lake and into files while its rows change. It kills a run with SIGKILL and
    resumes it. Then it compares source and sinks by checksum; the exit code is 1 if they differ.

    FOLDER must not exist, be empty, or belong to an earlier demo. The server listens only on 127.0.0.1 and has its own
    password. It is installed as a wheel: pip install 'penstock[demo]'.
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
