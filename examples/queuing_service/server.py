"""The service on TCP: each request and each answer is a u32 length and that many bytes.

A client may send requests without waiting; answers come in the order of the requests.  Whoever does not
finish a request, or does not read its answers, is cut off after a while and has cost a bounded amount of memory.
This module knows sockets and framing; what is in a request is none of its business.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final

from qsratchet.codec import u32

from .protocol import Fault, Refusal, encode_answer
from .service import Service

log = logging.getLogger(__name__)

_LENGTH_SIZE: Final = 4
#: When so many bytes of answers wait in one connection, the writer waits for its reader.
_BUFFER: Final = 256 * 1024


class Server:
    """A listening socket and its connections.  `start`, then `stop`, which finishes what is under way."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._limits = service.limits
        self._server: asyncio.Server
        self._connections: set[asyncio.Task[None]] = set()
        self._readers: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port, which is a free one if 0 was asked for."""
        self._server = await asyncio.start_server(self._accept, host, port, limit=_BUFFER)
        chosen: int = self._server.sockets[0].getsockname()[1]
        return chosen

    async def stop(self) -> None:
        """Take no more connections and requests, answer those that were read, and close."""
        self._server.close()
        for reader in self._readers:
            reader.cancel()
        if self._connections:
            await asyncio.wait(self._connections)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(high=_BUFFER)
        # The queue's size bounds the requests in flight: the reader waits when the writer falls behind.
        answers: asyncio.Queue[asyncio.Task[bytes] | None] = asyncio.Queue(self._limits.requests_per_connection)
        writing = asyncio.create_task(self._write(answers, writer))
        reading = asyncio.create_task(self._read(reader, answers))
        self._readers.add(reading)
        try:
            await asyncio.wait((reading, writing), return_when=asyncio.FIRST_COMPLETED)
            reading.cancel()
            await asyncio.wait((reading,))
            if not writing.done():
                # The reader has stopped, so the rest of the answers is all there is; None ends it.
                end = asyncio.create_task(answers.put(None))
                await asyncio.wait((end, writing), return_when=asyncio.FIRST_COMPLETED)
                await asyncio.wait((writing,))
                end.cancel()
            for task in (reading, writing):
                error = None if task.cancelled() else task.exception()
                if error is not None:
                    log.info("connection ended: %s", type(error).__name__)
        finally:
            self._readers.discard(reading)
            await self._close(writer, flush=not writing.cancelled() and writing.exception() is None)

    async def _close(self, writer: asyncio.StreamWriter, *, flush: bool) -> None:
        """Close a connection, with what is still to be written if the client goes on reading."""
        if flush:
            writer.close()
            with contextlib.suppress(OSError, TimeoutError):
                await asyncio.wait_for(writer.wait_closed(), self._limits.patience)
        writer.transport.abort()

    async def _read(self, reader: asyncio.StreamReader, answers: asyncio.Queue[asyncio.Task[bytes] | None]) -> None:
        if len(self._connections) > self._limits.connections:
            await answers.put(asyncio.create_task(_refuse(Fault.BUSY, "too many connections; try again later", 0)))
            return
        while True:
            first = await reader.read(1)  # A connection may be idle for as long as it likes, but only between requests.
            if not first:
                return
            async with asyncio.timeout(self._limits.patience):
                size = int.from_bytes(first + await reader.readexactly(_LENGTH_SIZE - 1), "big")
                if size > self._limits.request:
                    # What follows cannot be told from a new request without reading it all, so this is the end.
                    text = "the request is too long"
                    await answers.put(asyncio.create_task(_refuse(Fault.TOO_LARGE, text, self._limits.request)))
                    return
                data = await reader.readexactly(size)
            task = asyncio.create_task(self._service.answer(data))
            try:
                await answers.put(task)
            except asyncio.CancelledError:
                # The service stops while this connection's queue is full: what was read must still be carried out.
                await task
                raise

    async def _write(self, answers: asyncio.Queue[asyncio.Task[bytes] | None], writer: asyncio.StreamWriter) -> None:
        while (task := await answers.get()) is not None:
            answer = await task
            writer.write(u32(len(answer)) + answer)
            async with asyncio.timeout(self._limits.patience):
                await writer.drain()


async def _refuse(fault: Fault, text: str, detail: int) -> bytes:
    log.info("refused: %s", fault.name)
    return encode_answer(Refusal(fault, text, detail))
