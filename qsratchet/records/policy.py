"""How long a service keeps what: the limits as one value, with two presets.

A promise of N days means N full days.  Records have no time of day, so the day of the last use and the day
of the sweep do not count: what was used on day d goes on day d + N + 1 at the earliest.  This module knows numbers
and calendars; what is done with them is in `retention`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Final, assert_never

from ..errors import MisuseError
from .record import Usage, require_date

__all__ = ["DEFAULT_POLICY", "UPSTREAM_2025", "BlobsGo", "MessageLimits", "RetentionPolicy"]


class BlobsGo(Enum):
    """When the blobs of a messaging queue have done their work."""

    #: As soon as the queue is secured.  A sender whose answer was lost then cannot open the link again.
    AT_SECURING = 1
    #: When a message is sent to the secured queue, which shows that the sender has what it needs.
    AT_FIRST_MESSAGE = 2


def keep_from(today: date, days: int) -> date:
    """Return the oldest day whose traces are kept today, when `days` full days are promised."""
    return date.fromordinal(max(today.toordinal() - days, 1))


def _require_positive(name: str, value: int) -> None:
    if value < 1:
        raise MisuseError(f"{name} is at least 1, not {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageLimits:
    """How many messages a queue holds, and for how many full days each of them."""

    days: int
    messages: int

    def __post_init__(self) -> None:
        _require_positive("days", self.days)
        _require_positive("messages", self.messages)

    def oldest_kept(self, today: date) -> date:
        """Return the first day whose messages are kept; those of every day before it may be deleted."""
        require_date(today)
        return keep_from(today, self.days)

    def accepts(self, queued: int) -> bool:
        """Say whether a queue that holds `queued` messages takes one more."""
        return queued < self.messages


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """The limits of a service.  Every number is in full days; the defaults are `DEFAULT_POLICY`."""

    #: A messaging queue that nobody secured, after its last use.
    unsecured_days: int = 21
    #: A contact address, after its owner's last visit.
    owner_days: int = 730
    #: A suspended queue, after its owner's last visit: by then its messages have gone.  `None` keeps it.
    suspended_days: int | None = 21
    blobs_go: BlobsGo = BlobsGo.AT_FIRST_MESSAGE
    messaging: MessageLimits = MessageLimits(days=21, messages=128)
    #: More senders than a messaging queue, and requests that are worth less with age: more room, less time.
    contact: MessageLimits = MessageLimits(days=14, messages=512)

    def __post_init__(self) -> None:
        _require_positive("unsecured_days", self.unsecured_days)
        _require_positive("owner_days", self.owner_days)
        if self.suspended_days is not None:
            _require_positive("suspended_days", self.suspended_days)

    def messages(self, usage: Usage) -> MessageLimits:
        """Return what holds for the messages of a queue with this usage."""
        match usage:
            case Usage.MESSAGING:
                return self.messaging
            case Usage.CONTACT:
                return self.contact
            case _:
                assert_never(usage)


#: 21 days for an unsecured messaging queue, two years for a contact address without its owner.
DEFAULT_POLICY: Final = RetentionPolicy()

#: The numbers of SimpleX's later design notes (three months, three years) and of its server's code (one message
#: limit for every queue).  Its server does not expire suspended queues.
UPSTREAM_2025: Final = RetentionPolicy(
    unsecured_days=90,
    owner_days=1095,
    suspended_days=None,
    contact=MessageLimits(days=21, messages=128),
)
