"""qsratchet: encrypted queues with forward secrecy and post-compromise security, as sans-IO state machines.

A service seals every message it stores (`Enqueuer`); only the queue's owner can open it (`Dequeuer`).  No
sockets, files, clocks or threads are in here: the host owns them.  Start with the README, then docs/guide.md.
"""

from .codec import Buffer
from .crypto.suites import DEFAULT_SUITE, SUITES, Suite
from .errors import DecodeError, KeyRejected, LimitExceeded, MisuseError, QSRatchetError, RejectedError, StateError
from .queue.dequeuer import Dequeuer
from .queue.enqueuer import Enqueuer
from .queue.frames import EPOCH_CAP, MESSAGE_LIMIT, Frame, FrameType, Header, header_of
from .queue.grants import Grant, GrantWalk, OwnerKeys, derive_grants
from .queue.opened import Head, Initialised, Message, Opened, Updated
from .queue.policy import PADME, UNPADDED, Padding, ReadPolicy, UpdatePolicy
from .queue.request import CreationRequest, KeyOffer, OfferRejected
from .queue.verdicts import (
    Duplicate,
    EpochGap,
    Fork,
    FrameRejected,
    Gap,
    GapTooWide,
    HeadAhead,
    HeadRejected,
    MalformedFrame,
    MissingKey,
    OutsideGrant,
    Passed,
    RolledBack,
    Tampered,
    UnexpectedInit,
    UnknownSuite,
    UnknownType,
    UnknownVersion,
    WrongEpoch,
    WrongSuite,
)

__all__ = [
    "DEFAULT_SUITE",
    "EPOCH_CAP",
    "MESSAGE_LIMIT",
    "PADME",
    "SUITES",
    "UNPADDED",
    "Buffer",
    "CreationRequest",
    "DecodeError",
    "Dequeuer",
    "Duplicate",
    "Enqueuer",
    "EpochGap",
    "Fork",
    "Frame",
    "FrameRejected",
    "FrameType",
    "Gap",
    "GapTooWide",
    "Grant",
    "GrantWalk",
    "Head",
    "HeadAhead",
    "HeadRejected",
    "Header",
    "Initialised",
    "KeyOffer",
    "KeyRejected",
    "LimitExceeded",
    "MalformedFrame",
    "Message",
    "MissingKey",
    "MisuseError",
    "OfferRejected",
    "Opened",
    "OutsideGrant",
    "OwnerKeys",
    "Padding",
    "Passed",
    "QSRatchetError",
    "ReadPolicy",
    "RejectedError",
    "RolledBack",
    "StateError",
    "Suite",
    "Tampered",
    "UnexpectedInit",
    "UnknownSuite",
    "UnknownType",
    "UnknownVersion",
    "UpdatePolicy",
    "Updated",
    "WrongEpoch",
    "WrongSuite",
    "derive_grants",
    "header_of",
]
