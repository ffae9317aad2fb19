"""The other end of the service, for owners and senders: it signs, sends, and turns refusals into `Refusal`.

It blocks, and holds no state but the last number: an answer that is lost is asked for again by whoever calls.  How
bytes travel is a function from a request to an answer, so that TCP and HTTP are one line each.
"""

from __future__ import annotations

import http.client
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from qsratchet import CreationRequest, DecodeError, KeyOffer
from qsratchet.codec import u32
from qsratchet.crypto import SigningKey
from qsratchet.records import Usage

from .protocol import (
    Accepted,
    Answer,
    AskBlobs,
    AskHead,
    BlobsGiven,
    Create,
    Delete,
    Done,
    Enqueue,
    Fetch,
    Fetched,
    HeadGiven,
    OfferKey,
    Operation,
    Remaining,
    Reset,
    Secure,
    StoreBlobs,
    Suspend,
    decode_answer,
    sign_request,
)

Exchange = Callable[[bytes], bytes]
_A = TypeVar("_A", bound=Answer)
#: No answer is longer: frames of a fetch, and the last of them.
ANSWER_LIMIT: Final = 32 << 20
_CONTENT_TYPE: Final = "application/octet-stream"


class TcpExchange:
    """Requests over one TCP connection, which is made when it is needed, and again after it broke."""

    def __init__(self, host: str, port: int, timeout: float = 30.0) -> None:
        self._address = (host, port)
        self._timeout = timeout
        self._socket: socket.socket | None = None

    def __call__(self, request: bytes) -> bytes:
        """Send and wait; `OSError` if it cannot be known whether the service has got it."""
        try:
            if self._socket is None:
                self._socket = socket.create_connection(self._address, self._timeout)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.sendall(u32(len(request)) + request)
            size = int.from_bytes(self._receive(self._socket, 4), "big")
            if size > ANSWER_LIMIT:
                raise ConnectionError(f"an answer of {size} bytes is none")
            return self._receive(self._socket, size)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    @staticmethod
    def _receive(connection: socket.socket, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = connection.recv(min(size - len(data), 1 << 20))
            if not part:
                raise ConnectionError("the service closed the connection before its answer was whole")
            data += part
        return bytes(data)


class HttpExchange:
    """Requests as HTTP POST; `OSError` if it cannot be known whether the service has got it."""

    def __init__(self, url: str, timeout: float = 30.0) -> None:
        self._url = url
        self._timeout = timeout

    def __call__(self, request: bytes) -> bytes:
        post = urllib.request.Request(self._url, request, {"Content-Type": _CONTENT_TYPE})
        try:
            with urllib.request.urlopen(post, timeout=self._timeout) as answer:
                return _whole(answer)
        except urllib.error.HTTPError as error:
            with error:
                if error.headers.get_content_type() != _CONTENT_TYPE:
                    raise  # Not the service's own words: a proxy's, or a server's that takes no more connections.
                return _whole(error)  # A refusal: its body says which.
        except http.client.HTTPException as error:
            raise ConnectionError("the service closed the connection before its answer was whole") from error

    def close(self) -> None:
        """Each request has a connection of its own: nothing is left to close."""


def _whole(answer: http.client.HTTPResponse | urllib.error.HTTPError) -> bytes:
    """The body of a response, if all of it came: reading up to a limit does not tell that it was cut off."""
    data = answer.read(ANSWER_LIMIT)
    if str(len(data)) != answer.headers.get("Content-Length"):
        raise ConnectionError("the service closed the connection before its answer was whole")
    return data


def exchange_with(service: str) -> TcpExchange | HttpExchange:
    """The way to a service at `host:port`, or at `http://host:port`; `https:` where a proxy brings TLS."""
    if service.startswith(("http://", "https://")):
        return HttpExchange(f"{service.rstrip('/')}/requests")
    host, _, port = service.rpartition(":")
    if not host or not port.isdecimal():
        raise SystemExit(f"a service is host:port or http://host:port, not {service}")
    return TcpExchange(host, int(port))


class Client:
    """What one key may ask of one service."""

    def __init__(self, exchange: Exchange, service_id: bytes, key: SigningKey) -> None:
        self._exchange = exchange
        self._service_id = service_id
        self._key = key
        self._number = 0

    def create(
        self, queue_id: bytes, request: CreationRequest, sender_id: bytes, usage: Usage, blobs: Mapping[int, bytes]
    ) -> None:
        operation = Create(request=request.encode(), sender_id=sender_id, usage=usage, blobs=blobs)
        self._ask(Done, queue_id, operation)

    def enqueue(self, sender_id: bytes, message_id: bytes, message: bytes) -> int:
        """Enqueue; the message's number.  Repeat it with the same id until there is an answer."""
        return self._ask(Accepted, sender_id, Enqueue(message_id=message_id, message=message)).seq

    def fetch(self, queue_id: bytes, first: int, limit: int = 100) -> Fetched:
        """The frames from this number on.  Give `Dequeuer.fetch_from`, after the state was persisted."""
        return self._ask(Fetched, queue_id, Fetch(first=first, limit=limit))

    def head(self, queue_id: bytes, nonce: bytes) -> bytes:
        return self._ask(HeadGiven, queue_id, AskHead(nonce=nonce)).head

    def offer(self, queue_id: bytes, offer: KeyOffer) -> None:
        self._ask(Done, queue_id, OfferKey(offer=offer.encode()))

    def suspend(self, queue_id: bytes) -> int:
        """How many messages are left."""
        return self._ask(Remaining, queue_id, Suspend()).messages

    def secure(self, target: bytes, sender_key: bytes) -> Mapping[int, bytes]:
        """Secure a queue; its blobs."""
        return self._ask(BlobsGiven, target, Secure(sender_key=sender_key)).blobs

    def delete(self, queue_id: bytes) -> None:
        self._ask(Done, queue_id, Delete())

    def store_blobs(self, queue_id: bytes, blobs: Mapping[int, bytes]) -> None:
        self._ask(Done, queue_id, StoreBlobs(blobs=blobs))

    def blobs(self, sender_id: bytes) -> Mapping[int, bytes]:
        return self._ask(BlobsGiven, sender_id, AskBlobs()).blobs

    def reset(self, queue_id: bytes, request: CreationRequest) -> None:
        self._ask(Done, queue_id, Reset(request=request.encode()))

    def _ask(self, expected: type[_A], target: bytes, operation: Operation) -> _A:
        self._number = max(self._number + 1, time.time_ns() // 1_000)
        answer = decode_answer(
            self._exchange(sign_request(self._service_id, self._key, target, self._number, operation))
        )
        if not isinstance(answer, expected):
            raise DecodeError("answer", f"it is {type(answer).__name__}, and {expected.__name__} was due")
        return answer
