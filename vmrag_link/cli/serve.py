"""`vmrag serve`."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import msgspec

from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.ops.upkeep import serve as operation
from vmrag_link.ops.upkeep.serve import Serving

_PATH = click.Path(path_type=Path)


@vmrag_command("serve")
@click.argument("folder", required=False, type=_PATH)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=operation.PORT, show_default=True, help="0 takes a free one."
)
@click.option(
    "--bind",
    metavar="ADDRESS",
    default=operation.LOOPBACK,
    show_default=True,
    help="The IPv4 address to listen on. Any other takes --cert, --key and --clients.",
)
@click.option(
    "--host",
    metavar="NAME",
    help="The host in the URLs that clients use, if it is not ADDRESS. Requests that name another host are refused.",
)
@click.option("--cert", type=_PATH, metavar="FILE", help="The server's certificate (PEM): serve https.")
@click.option("--key", type=_PATH, metavar="FILE", help="Its private key (PEM), which only you may read.")
@click.option("--clients", type=_PATH, metavar="FOLDER", help="The public keys of those who may clone, fetch and push.")
@click.option(
    "--timeout",
    type=click.IntRange(1, 3600),
    default=operation.TIMEOUT,
    show_default=True,
    help="Seconds after which a request is given up.",
)
@click.option(
    "--export-key",
    "export",
    type=_PATH,
    metavar="FOLDER",
    help="Serve nothing: write your public key there, for the administrator of a server. Makes your key if you have none.",
)
def command(
    invocation: Invocation,
    *,
    folder: Path | None,
    port: int,
    bind: str,
    host: str | None,
    cert: Path | None,
    key: Path | None,
    clients: Path | None,
    timeout: int,
    export: Path | None,
) -> None:
    """Let others clone, fetch and push the embedded knowledge bases in FOLDER at
    http://ADDRESS:PORT/NAME, until Ctrl-C. Dolt serves its own: dolt sql-server --remotesapi-port.

    FOLDER holds remote knowledge bases and nothing else; it is made if it is missing, and so is a
    knowledge base whose NAME is new when it is pushed. On this computer every program may read and
    write; for other computers see docs/serving.md.
    """
    there = invocation.directory
    if export:
        exported = operation.export_key(there / export)
        invocation.emit(exported, [f"Your public key for a server's administrator: {exported.path}"])
        return
    if folder is None:
        raise click.UsageError("Missing argument 'FOLDER'.")
    protection = operation.protection(
        bind=bind,
        host=host,
        certificate=cert and there / cert,
        key=key and there / key,
        clients=clients and there / clients,
    )
    with (
        _stopping() as wait,
        operation.serve(
            there / folder, port=port, bind=bind, host=host, protection=protection, timeout=timeout
        ) as served,
    ):
        if invocation.as_json:  # in one line: a program that waits for it sees no end of the output
            output.print_json(msgspec.json.encode(served).decode())
        else:
            invocation.emit(served, _lines(served))
        wait()


@contextlib.contextmanager
def _stopping() -> Iterator[Callable[[], object]]:
    """Ctrl-C and SIGTERM end the wait and nothing else.

    Threads that start in the block do not take these signals.
    """
    stops = {signal.SIGINT, signal.SIGTERM}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    try:
        yield lambda: signal.sigwait(stops)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _lines(served: Serving) -> Iterator[str]:
    yield f"Serving {served.folder} at {served.url}/NAME"
    for name in served.names:
        yield f"  {served.url}/{name}"
    if not served.protected:
        yield "Every program on this computer may read and write it; web pages may not."
    yield "Ctrl-C stops the server."
