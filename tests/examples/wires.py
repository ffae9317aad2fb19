"""Both transports as bytes on a socket, for tests that break them: how a request and an answer look on each."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from examples.queuing_service.protocol import Answer, Refusal, decode_answer
from qsratchet.codec import u32


class TcpWire:
    """A length and the bytes."""

    options: Sequence[str] = ()
    address = "127.0.0.1:{}"

    def wrapped(self, request: bytes, *, size: int | None = None) -> bytes:
        """A request as it goes over the wire; `size` is a claim about its length."""
        return u32(len(request) if size is None else size) + request

    def answered(self, answer: bytes) -> bytes:
        """An answer as it goes over the wire."""
        return u32(len(answer)) + answer

    def receive(self, connection: socket.socket) -> Answer | Refusal:
        size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
        return decoded(connection.recv(size, socket.MSG_WAITALL))


class HttpWire:
    """A POST and its response."""

    options: Sequence[str] = ("--http",)
    address = "http://127.0.0.1:{}"

    def wrapped(self, request: bytes, *, size: int | None = None) -> bytes:
        length = len(request) if size is None else size
        return b"POST /requests HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % length + request

    def answered(self, answer: bytes) -> bytes:
        fields = b"Content-Type: application/octet-stream\r\nContent-Length: %d\r\nConnection: close" % len(answer)
        return b"HTTP/1.1 %s\r\n%s\r\n\r\n%s" % (b"200 OK" if answer[0] else b"503 Busy", fields, answer)

    def receive(self, connection: socket.socket) -> Answer | Refusal:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = connection.recv(1)
            assert byte, f"the connection ended after {head!r}"
            head += byte
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
        return decoded(connection.recv(int(fields[b"content-length"]), socket.MSG_WAITALL))


Wire = TcpWire | HttpWire


def decoded(answer: bytes) -> Answer | Refusal:
    try:
        return decode_answer(answer)
    except Refusal as refusal:
        return refusal
