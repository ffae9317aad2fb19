"""A real service process that stops between sealing and storing until it is told to go on.

It prints `sealed` whenever it has sealed messages that are not stored yet, and waits for a line on its input.  So a
test can put two workers of one file into the moment in which only the generation can tell them apart.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from examples.queuing_service import __main__ as program
from examples.queuing_service.protocol import Enqueue, Refusal, Request
from examples.queuing_service.sealing import Sealed
from examples.queuing_service.storage import Storage


class HeldStorage(Storage):
    def seal_all(self, requests: Sequence[Request], now: float) -> list[Sealed | Refusal | None]:
        sealed = super().seal_all(requests, now)
        if any(isinstance(request.operation, Enqueue) for request in requests):
            print("sealed", flush=True)
            sys.stdin.readline()
        return sealed


if __name__ == "__main__":
    program.Storage = HeldStorage  # type: ignore[attr-defined]
    program.main()
