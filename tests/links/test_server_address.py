"""Server addresses: every name has one spelling."""

from __future__ import annotations

import pytest
from hypothesis import given

from qsratchet.codec import Reader
from qsratchet.errors import DecodeError, MisuseError, StateError
from qsratchet.links import ServerAddress

from .shelf import SERVERS


def address(host: str) -> ServerAddress:
    return ServerAddress(hosts=(host,), port=5223, fingerprint=bytes(32))


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "queue.example.org",
        "xn--bcher-kva.example",
        "a-b.c-d.e",
        "1.example",
        "127.0.0.1",
        "::1",
        "2001:db8::1",
        "a" * 63 + ".org",
        "p53lf57qovyuvwsc6xnrppyply3vtqm7l6pcobkmyqsiofyeznfu5uqd.onion",
    ],
)
def test_names_and_addresses_in_their_one_spelling_are_taken(host: str) -> None:
    assert address(host).hosts == (host,)


@pytest.mark.parametrize(
    "host",
    [
        "",
        ".",
        "Queue.example.org",
        "queue.example.org.",
        "queue..example",
        "-a.example",
        "a-.example",
        "a_b.example",
        "bücher.example",
        "a b",
        "a\n",
        "a" * 64 + ".org",
        ".".join(["a" * 63] * 4),
        "256.1.1.1",
        "1.2.3",
        "127.0.0.01",
        "7",
        "٣",
        "queue.example.org:5223",
        "https://queue.example.org",
        "[::1]",
        "::01",
        "2001:DB8::1",
        "fe80::1%eth0",
        "::1\n",
        "::ffff:7f00:1",
        "::ffff:127.0.0.1",
    ],
)
def test_other_spellings_are_refused(host: str) -> None:
    with pytest.raises(MisuseError):
        address(host)


def test_hosts_port_and_fingerprint_are_checked() -> None:
    with pytest.raises(MisuseError, match="tuple of names"):
        ServerAddress(hosts="queue.example.org", port=1, fingerprint=bytes(32))  # type: ignore[arg-type]
    with pytest.raises(MisuseError, match="1 to 4 host names, not 0"):
        ServerAddress(hosts=(), port=1, fingerprint=bytes(32))
    with pytest.raises(MisuseError, match="1 to 4 host names, not 5"):
        ServerAddress(hosts=tuple("abcde"), port=1, fingerprint=bytes(32))
    with pytest.raises(MisuseError, match="twice"):
        ServerAddress(hosts=("a", "b", "a"), port=1, fingerprint=bytes(32))
    for port in (0, 65536, -1):
        with pytest.raises(MisuseError, match="1 to 65535"):
            ServerAddress(hosts=("a",), port=port, fingerprint=bytes(32))
    for size in (0, 31, 33):
        with pytest.raises(MisuseError, match=f"32 bytes, not {size}"):
            ServerAddress(hosts=("a",), port=1, fingerprint=bytes(size))


@given(SERVERS)
def test_reading_undoes_encoding(server: ServerAddress) -> None:
    reader = Reader(server.encode(), "address")
    assert ServerAddress.read(reader) == server
    reader.end()


@pytest.mark.parametrize("stored", [True, False])
def test_stored_bytes_that_are_no_address_are_an_error_of_the_storage(stored: bool) -> None:
    for tail in (b"\x00\x01\x00", b"\x00\x00\x01\x00\x01a", b"\x00\x01\x01\x00\x01A", b"\x00\x01\x01\x00\x01\xe9"):
        with pytest.raises(StateError if stored else DecodeError):
            ServerAddress.read(Reader(bytes(32) + tail, "address", stored=stored))


def test_a_port_is_a_whole_number() -> None:
    with pytest.raises(TypeError):
        ServerAddress(hosts=("queue.example.org",), port=443.0, fingerprint=bytes(32))  # type: ignore[arg-type]
