"""`penstock serve`: receives batches over HTTP into a write-ahead log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.shared.error_report import report_errors
from penstock.cli.shared.parameters import EnvFile, Set

if TYPE_CHECKING:
    from penstock.config.receiver import Receiver


def serve(
    file: Annotated[
        str | None,
        typer.Argument(metavar="[FILE]", help="A pipeline file with a `receiver` section.", show_default=False),
    ] = None,
    directory: Annotated[
        str | None,
        typer.Option("--directory", metavar="PATH", help="Folder of the logs.", show_default=False),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option("--host", metavar="ADDRESS", help="Address to listen on. Default: 127.0.0.1.", show_default=False),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65535, help="Port to listen on. Default: 8737.", show_default=False),
    ] = None,
    set_: Set = None,
    _env_file: EnvFile = None,
) -> None:
    """Receive batches over HTTP, and answer once they are in a write-ahead log.

    \b
    Examples:
      penstock serve shop.yaml
      penstock serve --directory received --port 8737

    FILE declares streams, limits, TLS and the directory under `receiver`. Without it, --directory is required, and any
    stream is created by its first batch. A pipeline with a source of type `wal` delivers what was received.

    Listens on this machine alone, unless there are tokens: `penstock token create`. SIGTERM and SIGINT stop it after
    the requests in progress are answered, within 10 seconds. One process serves one directory.
    """
    with report_errors(file or ""):
        from penstock.service.events import say
        from penstock.service.serving import serve as run

        run(_settings(file, directory, host, port, set_ or []), say, is_from_file=file is not None)


def _settings(file: str | None, directory: str | None, host: str | None, port: int | None, sets: list[str]) -> Receiver:
    import os

    from penstock.config.receiver import Receiver
    from penstock.errors import UNTOUCHED, InputError

    given: dict[str, Any] = {"directory": directory, "host": host, "port": port}
    given = {name: value for name, value in given.items() if value is not None}
    if file is None:
        if directory is None:
            raise InputError(
                "neither a pipeline file nor --directory was given",
                safe=UNTOUCHED,
                next_step="penstock serve FILE, or penstock serve --directory received",
            )
        return Receiver(**given, create_streams=True)
    from penstock import wiring

    loaded = wiring.load(file, sets)
    settings = loaded.receiver
    if settings is None:
        raise InputError(
            f"{file} has no `receiver` section",
            safe=UNTOUCHED,
            next_step="add `receiver: {directory: .penstock/received, create_streams: true}`, or give --directory "
            "instead of the file",
        )
    in_file: dict[str, Any] = {"directory": os.path.join(loaded.folder, settings.directory)}
    if settings.tls is not None:
        paths = {name: os.path.join(loaded.folder, path) for name, path in settings.tls.model_dump().items()}
        in_file["tls"] = settings.tls.model_copy(update=paths)
    return settings.model_copy(update=in_file | given)
