"""Start the service: it prints the port when it is ready, and ends in good order on SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from pathlib import Path

from qsratchet import UpdatePolicy
from qsratchet.records import MessageLimits, RetentionPolicy

from .database import BUSY_TIMEOUT
from .server import Server
from .service import Limits, Service
from .storage import Storage


async def serve(storage: Storage, limits: Limits, host: str, port: int) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with Service(storage, limits) as service:
        server = Server(service)
        print(f"listening on {host}:{await server.start(host, port)}", flush=True)
        await stopping.wait()
        await server.stop()


def main() -> None:
    defaults = Limits()
    parser = argparse.ArgumentParser(prog="python -m examples.queuing_service", description=__doc__)
    parser.add_argument("--database", type=Path, required=True, help="the SQLite file; made if it is not there")
    parser.add_argument("--name", default="service.example", help="the service's id, to which its queues are bound")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--http", action="store_true", help="speak HTTP (needs the extra `http`)")
    parser.add_argument("--update-every", type=int, default=500, help="messages of an epoch")
    parser.add_argument("--queue-length", type=int, default=128, help="messages that a queue holds")
    parser.add_argument("--message-size", type=int, default=defaults.message, help="bytes of a message")
    parser.add_argument("--in-flight", type=int, default=defaults.requests, help="requests in flight")
    parser.add_argument("--patience", type=float, default=defaults.patience, help="seconds for a slow client")
    parser.add_argument("--blob-bytes", type=int, default=defaults.blob_bytes, help="bytes of all blobs together")
    parser.add_argument("--sweep-every", type=float, default=defaults.sweep_every, help="seconds between two sweeps")
    parser.add_argument("--max-pages", type=int, help="limit of the file, in pages of 4 KiB")
    parser.add_argument(
        "--busy-timeout", type=int, default=BUSY_TIMEOUT, help="milliseconds to wait for another writer"
    )
    parser.add_argument("--verbose", action="store_true", help="log each refused request")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO if options.verbose else logging.WARNING, format="%(levelname)s %(message)s")
    held = options.queue_length
    storage = Storage(
        options.database,
        options.name.encode(),
        updates=UpdatePolicy(frames=options.update_every),
        retention=RetentionPolicy(
            messaging=MessageLimits(days=21, messages=held), contact=MessageLimits(days=14, messages=held)
        ),
        max_pages=options.max_pages,
        busy_timeout=options.busy_timeout,
    )
    limits = Limits(
        message=options.message_size,
        request=max(defaults.request, options.message_size + 1_024),
        requests=options.in_flight,
        patience=options.patience,
        blob_bytes=options.blob_bytes,
        sweep_every=options.sweep_every,
    )
    try:
        if options.http:
            from .web import serve as serve_http

            serve_http(storage, limits, options.host, options.port)
        else:
            asyncio.run(serve(storage, limits, options.host, options.port))
    finally:
        storage.close()
    print("stopped", flush=True)


if __name__ == "__main__":
    main()
