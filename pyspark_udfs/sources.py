"""How grants reach the executors: as a reference that each of them resolves for itself.

A source is pickled into the task, so it must hold no secret when it is pickled: a path, the name of a key in a key
service, a callable.  Whatever it has loaded by then it drops in `__getstate__`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from qsratchet import Grant, OwnerKeys

__all__ = ["GrantSource", "KeySource"]


class GrantSource(Protocol):
    """Finds the grants of a queue.

    It is called on the executors, once for each run of rows of one queue, so a look-up should cost microseconds.  A
    task unpickles the source anew: what is costly to load (a passphrase's scrypt, a large file) is best cached once
    for each process, outside the object.
    """

    def grants(self, service_id: bytes, queue_id: bytes) -> Sequence[Grant]:
        """The grants of this queue, in any order; none if there are none."""
        ...

    def queues(self) -> Sequence[tuple[bytes, bytes]]:
        """The (service_id, queue_id) pairs that the source has grants for."""
        ...


class KeySource(Protocol):
    """Finds the owner's keys of a queue, from which its grants are derived.  As secret as the queue itself."""

    def keys(self, service_id: bytes, queue_id: bytes) -> OwnerKeys | None:
        """The keys of this queue, or None."""
        ...
