"""Guarantee 8: secrets are in no repr, pickle, log line or error text.

A run collects every secret that exists in it; then everything that the library can print is searched for them,
raw and in the usual encodings.  The lists of classes are closed: a new public class must be added here.
"""

from __future__ import annotations

import base64
import copy
import functools
import inspect
import io
import logging
import pickle
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import qsratchet
from qsratchet import (
    SUITES,
    CreationRequest,
    Dequeuer,
    Enqueuer,
    FrameType,
    Grant,
    GrantWalk,
    OwnerKeys,
    QSRatchetError,
    ReadPolicy,
    UpdatePolicy,
    header_of,
)
from qsratchet.crypto.kem import PrivateKey
from qsratchet.crypto.secret import Sensitive
from qsratchet.queue.frames import pack_header

from .runs import Run, record

SCRIPT = "..U.K."
NONCE = bytes(16)


def secrets_of(run: Run, *requests: CreationRequest) -> set[bytes]:
    """Every chain key, message key, seed and join secret of the run."""
    found = {request.join_secret for request in requests}
    kdf = SUITES[run.suite].kdf
    for blob in run.service.values():
        chain_key = Enqueuer.load(blob)._chain_key
        found |= {chain_key, kdf.step(chain_key)[0]}
    for blob in [*run.owner.values(), *run.offering.values()]:
        owner = Dequeuer.load(blob)
        found |= {key.seed for key in owner._keys.values()}
        found |= {owner._join_secret} if owner._join_secret else {owner._chain_key}
    assert all(len(secret) == 32 for secret in found)
    return found


def assert_clean(text: str, secrets: set[bytes]) -> None:
    """No secret, nor half of one, is in the text under any encoding that a program is likely to print."""
    assert text
    plain, lower, packed = text, text.lower(), text.replace(" ", "").replace(":", "").lower()
    for secret in secrets:
        for part in (secret, secret[:16], secret[16:]):
            assert part.hex() not in packed
            assert repr(part)[2:-1] not in plain
            assert part.decode("latin-1") not in plain
            assert str(list(part))[1:-1] not in plain
            assert str(int.from_bytes(part)) not in plain
            assert str(int.from_bytes(part, "little")) not in plain
        for encode in (base64.b64encode, base64.urlsafe_b64encode, base64.b32encode, base64.b85encode):
            assert encode(secret).decode().rstrip("=").lower() not in lower


def spoken(value: Any) -> Iterator[str]:
    """Everything a program may print of a value."""
    yield repr(value)
    yield str(value)
    yield f"{value}"
    yield f"{value!r:>200}"
    yield "%s %r" % (value, value)  # noqa: UP031 - This is how logging formats.
    yield repr([value]) + repr({"key": value})
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logger = logging.Logger("test")
    logger.addHandler(handler)
    logger.error("%s %r", value, value)
    if isinstance(value, BaseException):
        logger.error("failed", exc_info=value)
        yield "".join(traceback.format_exception(value))
        yield repr(value.args) + repr(vars(value))
    yield stream.getvalue()


@pytest.fixture(scope="module", params=SUITES, ids=lambda suite: f"0x{suite:04x}")
def run(request: pytest.FixtureRequest) -> Run:
    suite: int = request.param
    return record(SCRIPT, suite)


def holders(run: Run) -> tuple[list[Sensitive], set[bytes]]:
    """One of each kind of object that holds a secret, and all the secrets."""
    awaiting, reading = Dequeuer.load(run.owner[0]), Dequeuer.load(run.offering[5])
    _, request = Dequeuer.create(b"service", b"queue", suites=(run.suite,))
    walk = GrantWalk(awaiting.owner_keys())
    begun = GrantWalk(awaiting.owner_keys())
    grant = begun.open(run.frames[0])
    objects: list[Sensitive] = [
        awaiting,
        reading,
        Enqueuer.load(run.service[3]),
        request,
        reading.grant(),
        grant,
        awaiting.owner_keys(),
        reading.owner_keys(),
        walk,
        begun,
        next(iter(reading._keys.values())),
    ]
    return objects, secrets_of(run, request)


def test_the_search_finds_a_secret_in_every_encoding_that_it_knows() -> None:
    secret = bytes(range(100, 132))
    for text in (
        secret.hex(),
        secret.hex(" ").upper(),
        repr(secret),
        repr(bytearray(secret)),
        str(list(secret)),
        str(int.from_bytes(secret)),
        secret.decode("latin-1"),
        base64.b64encode(secret).decode(),
        base64.urlsafe_b64encode(secret).decode(),
    ):
        with pytest.raises(AssertionError):
            assert_clean(f"<Thing {text}>", {secret})
    assert_clean("<Thing>", {secret})


def test_no_object_that_holds_secrets_shows_them(run: Run) -> None:
    objects, secrets = holders(run)
    for value in objects:
        for text in spoken(value):
            assert_clean(text, secrets)


def test_no_object_that_holds_secrets_is_pickled_copied_or_hashed(run: Run) -> None:
    objects, _ = holders(run)
    attempts: list[Callable[[Any], object]] = [copy.copy, copy.deepcopy, hash, lambda value: value.__reduce__()]
    attempts += [functools.partial(pickle.dumps, protocol=p) for p in range(pickle.HIGHEST_PROTOCOL + 1)]
    for value in objects:
        for attempt in attempts:
            with pytest.raises(TypeError):
                attempt(value)


def test_every_public_class_is_known_to_hold_secrets_or_to_hold_none(run: Run) -> None:
    objects, _ = holders(run)
    public = {value for name in qsratchet.__all__ if inspect.isclass(value := getattr(qsratchet, name))}
    harmless = {
        qsratchet.Frame,
        qsratchet.FrameType,
        qsratchet.Head,
        qsratchet.Header,
        qsratchet.Initialised,
        qsratchet.KeyOffer,
        qsratchet.Message,
        qsratchet.Padding,
        qsratchet.ReadPolicy,
        qsratchet.Suite,
        qsratchet.Updated,
        qsratchet.UpdatePolicy,
    }
    errors = {value for value in public if issubclass(value, QSRatchetError)}
    queue_classes = {value for value in public if value.__module__.startswith(("qsratchet.queue", "qsratchet.crypto"))}
    assert queue_classes - errors - harmless == {type(value) for value in objects} - {PrivateKey}
    assert all(issubclass(value, Sensitive) for value in queue_classes - errors - harmless)
    assert {Dequeuer, Enqueuer, Grant, GrantWalk, OwnerKeys, CreationRequest} <= queue_classes


def test_values_that_hold_no_secret_show_none(run: Run) -> None:
    _, secrets = holders(run)
    reader, service = Dequeuer.load(run.owner[0]), Enqueuer.load(run.service[3])
    values: list[object] = [*reader.open_many(run.frames), *map(header_of, run.frames)]
    values += [Dequeuer.load(run.offering[5]).offer_key(), SUITES[run.suite], ReadPolicy(), UpdatePolicy()]
    values += service.enqueue(b"message", now=0)
    head = Enqueuer.load(run.service[3]).head(NONCE)
    values += [head, Dequeuer.load(run.owner[3]).verify_head(head, NONCE), FrameType.INIT]
    for value in values:
        for text in spoken(value):
            assert_clean(text, secrets)
        assert not isinstance(value, Sensitive)


def failures(run: Run) -> Iterator[Callable[[], object]]:
    """Calls that fail in every way that a caller, a storage or an attacker can bring about."""
    suite = run.suite
    qctx = Enqueuer.load(run.service[1])._qctx
    for seq, frame in enumerate(run.frames):
        blob = run.offering.get(seq, run.owner[seq])
        for tolerant in (False, True):

            def reader(blob: bytes = blob, tolerant: bool = tolerant) -> Dequeuer:
                return Dequeuer.load(blob, policy=ReadPolicy(tolerant=tolerant, forward_limit=1))

            for altered in (frame[:-1] + bytes([frame[-1] ^ 1]), frame[:20], frame[:10], b"", b"\xff" + frame[1:]):
                yield lambda r=reader, a=altered: r().open(a)  # type: ignore[misc]
            for other in run.frames:
                yield lambda r=reader, o=other: r().open(o)  # type: ignore[misc]
                # Under a number that was read before, this is a fork.
                yield lambda r=reader, o=other: r().open(o[:-1] + bytes([o[-1] ^ 1]))  # type: ignore[misc]
            for type, id, epoch, number in (
                (2, 0x7777, 0, seq),
                (9, suite, 0, seq),
                (1, suite, 0, seq + 5),
                (2, suite, 9, seq),
                (2, suite, 9, seq + 1),
                (2, suite, 0, 1 << 63),
                (2, suite, 0, 60_000),
                (2, suite, 0, 70_000),
                (4, suite, 0, seq),
                (2, 0x0001 if suite != 0x0001 else 0x0002, 0, seq),
            ):
                header = bytes([1, type]) + id.to_bytes(2) + epoch.to_bytes(4) + number.to_bytes(8)
                yield lambda r=reader, h=header: r().open(h + bytes(40))  # type: ignore[misc]
            for number in (0, seq, 1 << 62):
                head = pack_header(FrameType.HEAD, suite, 0, number) + bytes(32)
                yield lambda r=reader, h=head: r().verify_head(h, NONCE)  # type: ignore[misc]
            yield lambda r=reader: r().verify_head(b"", NONCE)  # type: ignore[misc]
            yield lambda r=reader: r().verify_head(b"", b"short")  # type: ignore[misc]
            yield lambda r=reader: r().discard(999)  # type: ignore[misc]
            yield lambda r=reader: r().open(b"", aad=bytes(70_000))  # type: ignore[misc]
        for at in range(0, len(blob), 7):
            yield lambda b=blob, at=at: Dequeuer.load(b[:at] + b"?" + b[at + 1 :])  # type: ignore[misc]
            yield lambda b=blob, at=at: Dequeuer.load(b[:at])  # type: ignore[misc]
        yield lambda b=blob: Enqueuer.load(b)  # type: ignore[misc]
        yield lambda b=blob: Grant.decode(b)  # type: ignore[misc]
        yield lambda b=blob: OwnerKeys.decode(b)  # type: ignore[misc]
        yield lambda b=blob: CreationRequest.decode(b)  # type: ignore[misc]
        yield lambda b=blob: qsratchet.KeyOffer.decode(b)  # type: ignore[misc]
        yield lambda b=blob: GrantWalk(Dequeuer.load(b).owner_keys()).open(b"\1\3" + bytes(40))  # type: ignore[misc]
    for blob in run.service.values():
        service = Enqueuer.load(blob)
        yield lambda b=blob: Dequeuer.load(b)  # type: ignore[misc]
        for at in range(0, len(blob), 7):
            yield lambda b=blob, at=at: Enqueuer.load(b[:at] + b"?" + b[at + 1 :])  # type: ignore[misc]
        yield lambda s=service: s.head(b"short")  # type: ignore[misc]
        yield lambda s=service: s.update(now=-1)  # type: ignore[misc]
        yield lambda s=service: s.enqueue(bytes((1 << 24) + 1), now=0)  # type: ignore[misc]
        for offer in (
            qsratchet.KeyOffer(suite, bytes(32), 1, bytes(32)),
            qsratchet.KeyOffer(suite, qctx, 0, bytes(32)),
            qsratchet.KeyOffer(suite, qctx, 9, bytes(32)),
            qsratchet.KeyOffer(suite, qctx, service.key_id + 1, bytes(3)),
            qsratchet.KeyOffer(suite, qctx, service.key_id + 1, bytes(SUITES[suite].kem.public_size)),
        ):
            yield lambda s=service, o=offer: s.accept_offer(o, now=0)  # type: ignore[misc]
    passed = Dequeuer.load(run.owner[1], policy=ReadPolicy(tolerant=True))
    passed.open(run.frames[2])
    yield lambda: passed.open(run.frames[1])
    yield lambda: passed.open(run.frames[2][:-1] + b"?")
    grant = GrantWalk(Dequeuer.load(run.owner[0]).owner_keys()).open(run.frames[0])
    for frame in run.frames[3:]:
        yield lambda f=frame: grant.open(f)  # type: ignore[misc]
        yield lambda f=frame: grant.open(f[:-1])  # type: ignore[misc]
    yield lambda: grant.chain_key(0)
    yield lambda: qsratchet.Padding((0,))
    yield lambda: Dequeuer.create(b"", b"queue")


def test_no_error_text_log_line_or_traceback_shows_a_secret(run: Run) -> None:
    _, secrets = holders(run)
    seen: set[type[BaseException]] = set()
    texts: set[str] = set()
    for failure in failures(run):
        try:
            failure()
        except QSRatchetError as error:
            seen.add(type(error))
            texts.update(spoken(error))
    # Many texts differ in a number only; joined, they are searched once.
    assert_clean("\n".join(texts), secrets)
    errors = {value for name in qsratchet.__all__ if inspect.isclass(value := getattr(qsratchet, name))}
    leaves = {error for error in errors if issubclass(error, QSRatchetError) and error.__module__ != "qsratchet.errors"}
    queue_leaves = {error for error in leaves if error.__module__.startswith("qsratchet.queue")}
    # Every error of the queue was really provoked, but for the abstract ones above them.
    assert queue_leaves - seen == {qsratchet.FrameRejected}
    assert {qsratchet.StateError, qsratchet.DecodeError, qsratchet.MisuseError, qsratchet.LimitExceeded} <= seen
    assert qsratchet.KeyRejected in seen
