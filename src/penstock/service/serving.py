"""Runs a receiver: takes the directory, opens its logs, listens, and stops cleanly on SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import ipaddress
import logging
import os
import resource
import signal
import socket
import ssl
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from penstock.config.receiver import Receiver as Settings
from penstock.config.receiver import ReceiverTls
from penstock.errors import UNTOUCHED, ConnectionFailed, InputError
from penstock.links.durable import make_folder
from penstock.service.access import Access
from penstock.service.app import create_app
from penstock.service.connections import limited
from penstock.service.events import Say
from penstock.service.load import Load
from penstock.service.receiver import Receiver, now
from penstock.service.room import Room
from penstock.service.streams import Streams
from penstock.service.tokens import TokenFile
from penstock.wal.group_commit import GroupCommit

#: seconds in which requests in progress are answered after a signal
_GRACE_SECONDS = 8
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_BACKLOG = 512


def serve(settings: Settings, say: Say, *, is_from_file: bool) -> None:
    """Serve until a signal. InputError or ConnectionFailed if that cannot begin."""
    _silence_uvicorn()
    tokens = TokenFile(settings.directory)
    family, address = _resolve(settings)
    is_loopback = ipaddress.ip_address(address[0].partition("%")[0]).is_loopback
    if not is_loopback and tokens.is_empty:
        raise InputError(
            f"{settings.host} can be reached from other machines, and {settings.directory} has no tokens",
            safe=UNTOUCHED,
            next_step=f"create one: penstock token create --directory {settings.directory} …; or listen on 127.0.0.1",
        )
    context = _tls_context(settings.tls) if settings.tls else None
    make_folder(settings.directory, 0o700)
    _raise_file_limit()
    with _directory_lock(settings.directory), contextlib.closing(_listen(settings, family, address)) as listener:
        streams = Streams(settings.directory, settings, now, say)
        receiver = Receiver(
            settings,
            streams,
            GroupCommit(),
            Access(tokens, is_loopback),
            Load(settings.limits),
            Room(settings.log, now),
            say,
        )
        try:
            streams.open_all()
            say(_started(settings, listener, tokens, is_from_file))
            if not is_loopback and context is None:
                say("no TLS: tokens and rows are readable on the way, unless a proxy in front of it adds TLS")
            asyncio.run(_serve(receiver, listener, context))
        finally:
            receiver.close()
        say("stopped: everything that was acknowledged is in the log")


def _started(settings: Settings, listener: socket.socket, tokens: TokenFile, is_from_file: bool) -> str:
    scheme = "https" if settings.tls else "http"
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    who = "a token is needed" if not tokens.is_empty else "no token is needed"
    streams = "any stream is created by its first batch" if settings.create_streams else "only declared streams"
    without = "" if is_from_file else "; without a pipeline file"
    return f"listening on {scheme}://{shown}:{port}, logs in {settings.directory} ({who}; {streams}{without})"


async def _serve(receiver: Receiver, listener: socket.socket, context: ssl.SSLContext | None) -> None:
    limits = receiver.settings.limits
    config = uvicorn.Config(
        create_app(receiver),
        http=limited(min(limits.idle_time, limits.request_time).total_seconds(), limits.connections),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        timeout_keep_alive=max(1, int(limits.idle_time.total_seconds())),
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    config.load()
    config.ssl = context
    server = _Server(config)
    loop = asyncio.get_running_loop()

    def stop(number: int) -> None:
        if server.should_exit:
            # A second signal: nothing more is waited for. What was acknowledged is on disk.
            os._exit(128 + number)
        receiver.say(f"stopping on signal {number}: requests in progress are answered")
        receiver.load.stop()
        server.should_exit = True

    for number in _SIGNALS:
        loop.add_signal_handler(number, stop, number)
    try:
        await server.serve(sockets=[listener])
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


class _Server(uvicorn.Server):
    """Without uvicorn's own handling of signals, which ends the process by the signal."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def _silence_uvicorn() -> None:
    """Its lines name addresses and paths of requests, and tracebacks; ours say what matters."""
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers = [logging.NullHandler()]
        logger.propagate = False


@contextmanager
def _directory_lock(directory: str) -> Iterator[None]:
    """One process for each directory, also while it has no log yet."""
    descriptor = os.open(os.path.join(directory, ".serve.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 20).decode(errors="replace").strip()
            raise ConnectionFailed(
                f"another `penstock serve` has {directory} open" + (f" (pid {holder})" if holder.isdigit() else ""),
                safe=UNTOUCHED,
                next_step="stop it first, or give this one another directory and port",
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _raise_file_limit() -> None:
    """Each stream takes three file descriptors: as many as this user may have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _resolve(settings: Settings) -> tuple[int, tuple[Any, ...]]:
    try:
        family, _, _, _, address = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise _no_listener(settings, error) from None
    return family, address


def _listen(settings: Settings, family: int, address: tuple[Any, ...]) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise _no_listener(settings, error) from None
    return listener


def _no_listener(settings: Settings, error: OSError) -> ConnectionFailed:
    return ConnectionFailed(
        f"cannot listen on {settings.host} port {settings.port}: {error.strerror}",
        safe=UNTOUCHED,
        next_step="choose another --port or --host, or stop the program that listens there",
    )


def _tls_context(tls: ReceiverTls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(tls.certificate, tls.key)
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror or type(error).__name__
        raise InputError(
            f"the certificate {tls.certificate} with the key {tls.key} cannot be used: {reason}",
            safe=UNTOUCHED,
            next_step="correct `receiver: tls:`. Both files must be in PEM, and the key without a passphrase",
        ) from None
    return context
