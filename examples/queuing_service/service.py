"""One request in, one answer out: what TCP and HTTP have in common.  It knows the limits and the clock, no socket.

A thread owns the storage.  Whatever waits while it commits goes into its next transaction together, so the cost
of a durable commit is shared by all who are waiting for one.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Self

from .protocol import Answer, Enqueue, Fault, Refusal, Request, encode_answer, open_request
from .storage import Storage

log = logging.getLogger(__name__)

#: So many requests share a transaction at most: it bounds how long the others wait.
BATCH: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one service takes.  How many messages a queue holds is in the storage's retention policy."""

    #: A message, in bytes.
    message: int = 16_384
    #: A request, in bytes: a creation with all its blobs, or a message, and the rest of it.
    request: int = 65_536
    #: Requests in flight, of all connections together: more are refused as busy.
    requests: int = 1_024
    #: Requests in flight on one connection: more are not read before the first of them are answered.
    requests_per_connection: int = 64
    connections: int = 1_000
    #: How long a client may take to send the rest of a request, or to read its answers, in seconds.
    patience: float = 30.0
    #: How many bytes blobs may take together: a sweep evicts what is more.
    blob_bytes: int = 1 << 30
    #: How often to delete what may go, in seconds.  Dates have no time of day, so more often than this is of no use.
    sweep_every: float = 3_600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    request: Request
    answer: asyncio.Future[Answer | Refusal]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sweep:
    done: asyncio.Future[None]


class Service:
    """The service without its transport.  Use it as `async with`; on leaving, what is under way is finished."""

    def __init__(self, storage: Storage, limits: Limits | None = None, clock: Callable[[], float] = time.time) -> None:
        self.limits: Final = limits or Limits()
        self._storage = storage
        self._clock = clock
        self._queue: queue.SimpleQueue[_Waiting | _Sweep | None] = queue.SimpleQueue()
        self._in_flight = 0
        self._thread = threading.Thread(target=self._write, name="writer")
        self._loop: asyncio.AbstractEventLoop
        self._sweeping: asyncio.Task[None]

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._thread.start()
        await self.sweep()
        self._sweeping = self._loop.create_task(self._keep_sweeping())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._sweeping.cancel()
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    async def sweep(self) -> None:
        """Delete what may go today, and blobs beyond the limit."""
        sweep = _Sweep(done=self._loop.create_future())
        self._queue.put(sweep)
        # Whoever stops waiting does not undo it, and the writer still says that it is done.
        await asyncio.shield(sweep.done)

    async def _keep_sweeping(self) -> None:
        while True:
            await asyncio.sleep(self.limits.sweep_every)
            await self.sweep()

    async def answer(self, data: bytes) -> bytes:
        """The answer to a request, as bytes.  Nothing that a stranger sends raises."""
        answer: Answer | Refusal
        try:
            answer = await self._carry_out(data)
        except Refusal as refusal:
            answer = refusal
        return encode_answer(answer)

    async def _carry_out(self, data: bytes) -> Answer | Refusal:
        if len(data) > self.limits.request:
            raise Refusal(Fault.TOO_LARGE, "the request is too long", self.limits.request)
        if self._in_flight >= self.limits.requests:
            raise Refusal(Fault.BUSY, "too many requests at once; nothing happened; try again")
        try:
            request = open_request(self._storage.service_id, data)
            if isinstance(request.operation, Enqueue) and len(request.operation.message) > self.limits.message:
                raise Refusal(Fault.TOO_LARGE, "the message is too long", self.limits.message)
        except Refusal as refusal:
            log.info("refused: %s", refusal.fault.name)
            raise
        self._in_flight += 1
        try:
            waiting = _Waiting(request=request, answer=self._loop.create_future())
            self._queue.put(waiting)
            # A client that goes away does not undo its request, so its future is not cancelled with it.
            answer = await asyncio.shield(waiting.answer)
        finally:
            self._in_flight -= 1
        if isinstance(answer, Refusal):
            log.info("refused: %s %s", answer.fault.name, request.describe())
        return answer

    # --- the writer's thread -----------------------------------------------------------------------

    def _write(self) -> None:
        while (item := self._queue.get()) is not None:
            batch: list[_Waiting] = []
            sweeps: list[_Sweep] = []
            while item is not None:
                if isinstance(item, _Sweep):
                    sweeps.append(item)
                else:
                    batch.append(item)
                if len(batch) >= BATCH or self._queue.empty():
                    break
                item = self._queue.get()
            if batch:
                answers = self._answers([waiting.request for waiting in batch])
                self._loop.call_soon_threadsafe(_release, batch, answers)
            for sweep in sweeps:
                self._sweep()
                self._loop.call_soon_threadsafe(sweep.done.set_result, None)
            if item is None:
                return

    def _sweep(self) -> None:
        try:
            self._storage.sweep(self._clock(), blob_bytes=self.limits.blob_bytes)
        except Exception:  # What is not swept now is swept next time.
            log.exception("a sweep failed")

    def _answers(self, requests: list[Request]) -> list[Answer | Refusal]:
        try:
            return self._storage.answer_all(requests, self._clock())
        except Exception:  # The service must outlive a mistake in one request.
            log.exception("a transaction failed")
            return [Refusal(Fault.FAILED, "the service failed; try again") for _ in requests]


def _release(batch: list[_Waiting], answers: list[Answer | Refusal]) -> None:
    for waiting, answer in zip(batch, answers, strict=True):
        if not waiting.answer.done():
            waiting.answer.set_result(answer)
