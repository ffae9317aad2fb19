"""The same service behind HTTP: a request is the body of a POST, its answer the body of the response.

    python -m examples.queuing_service --database service.db --port 8000 --http

Starlette and uvicorn, the extra `http`.  Requests are signed and answered as they are on TCP, so nothing here is
trusted more than a cable; the status code repeats the fault for proxies and logs.
"""

from __future__ import annotations

import asyncio
import math
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from .protocol import Fault, Refusal, encode_answer
from .service import Limits, Service
from .storage import Storage

PATH: Final = "/requests"
_STATUS: Final = {
    Fault.MALFORMED: 400,
    Fault.UNSIGNED: 401,
    Fault.REPLAYED: 409,
    Fault.CLOCK: 409,
    Fault.AUTH: 403,
    Fault.SUSPENDED: 403,
    Fault.QUOTA: 429,
    Fault.TOO_LARGE: 413,
    Fault.BUSY: 503,
    Fault.FULL: 507,
    Fault.AHEAD: 416,
    Fault.REJECTED: 422,
    Fault.FAILED: 500,
}


def application(storage: Storage, limits: Limits) -> Starlette:
    """The ASGI application, for uvicorn or any other server."""
    service = Service(storage, limits)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with service:
            yield

    async def requests(http: HttpRequest) -> Response:
        too_large = encode_answer(Refusal(Fault.TOO_LARGE, "the request is too long", limits.request))
        claimed = http.headers.get("content-length", "0")
        if len(claimed) > 10 or int(claimed) > limits.request:
            return _response(too_large, last=True)
        data = bytearray()
        try:
            async with asyncio.timeout(limits.patience):
                async for part in http.stream():
                    data += part
                    if len(data) > limits.request:
                        return _response(too_large, last=True)
        except (TimeoutError, ClientDisconnect):
            cut = encode_answer(Refusal(Fault.MALFORMED, "the request did not come to its end"))
            return _response(cut, last=True)
        return _response(await service.answer(bytes(data)))

    async def health(_: HttpRequest) -> Response:
        return PlainTextResponse("ready")

    routes = [Route(PATH, requests, methods=["POST"]), Route("/health", health)]
    return Starlette(routes=routes, lifespan=lifespan)


def patient_protocol(patience: float) -> type[H11Protocol]:
    """Uvicorn's own protocol, which waits for ever, with an end to that; a proxy in front would do the same."""

    class PatientProtocol(H11Protocol):
        _headers: asyncio.TimerHandle | None = None
        _writing: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._headers = self._start()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                # They are whole; whoever reads the body has a clock of its own.
                self._headers = self._stop(self._headers)
            elif self._headers is None:
                self._headers = self._start()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._writing = self._start()

        def resume_writing(self) -> None:
            super().resume_writing()
            self._writing = self._stop(self._writing)

        def connection_lost(self, exc: Exception | None) -> None:
            self._headers, self._writing = self._stop(self._headers), self._stop(self._writing)
            super().connection_lost(exc)

        def _start(self) -> asyncio.TimerHandle:
            # Not `close`, which would first wait for the client to read what is left.
            return self.loop.call_later(patience, self.transport.abort)

        def _stop(self, timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
            if timer is not None:
                timer.cancel()
            return None

    return PatientProtocol


def serve(storage: Storage, limits: Limits, host: str, port: int) -> None:
    """Run until SIGTERM or SIGINT; requests under way are answered first."""
    listening = socket.create_server((host, port), backlog=512)
    config = uvicorn.Config(
        application(storage, limits),
        http=patient_protocol(limits.patience),
        log_level="warning",
        limit_concurrency=limits.connections,
        timeout_graceful_shutdown=math.ceil(limits.patience),
        lifespan="on",
    )
    # uvicorn stops on a signal and then raises it again for who handled it before: the caller still has to close.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    print(f"listening on {host}:{listening.getsockname()[1]}", flush=True)
    uvicorn.Server(config).run(sockets=[listening])


def _response(answer: bytes, *, last: bool = False) -> Response:
    # The first byte of an answer is 0 for a refusal, and the second is its fault.
    status = _STATUS[Fault(answer[1])] if answer[0] == 0 else 200
    headers = {"Connection": "close"} if last else None
    return Response(answer, status, headers, media_type="application/octet-stream")
