"""The server in a link: its host names, its port, and the fingerprint of its key, which is its identity.

Host names come and go, so that only the fingerprint goes into derivations.  Every name has one spelling here:
lower case, ASCII, no trailing dot, addresses in their shortest form.  This module knows no keys of queues.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from operator import index
from typing import Final

from ..codec import Reader, lv, u8, u16
from ..errors import MisuseError

__all__ = ["FINGERPRINT_SIZE", "MAX_HOSTS", "ServerAddress", "check_host"]

#: SHA-256 of the key or certificate by which the transport recognises the server.
FINGERPRINT_SIZE: Final = 32
#: A public name, an onion address and two spare ones; more would make the link long for nothing.
MAX_HOSTS: Final = 4
#: The limit of DNS (RFC 1035).
MAX_HOST: Final = 253

_LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


def check_host(host: str) -> None:
    """Return if this is a host name or address in its one spelling; `MisuseError` says what to change.

    The error does not repeat the name: in a link that a broken program wrote, anything could stand there.
    """
    if ":" in host:
        try:
            address = IPv6Address(host)
        except AddressValueError:
            raise MisuseError(
                "write a host name without scheme and port, or an IPv6 address without brackets"
            ) from None
        # An IPv4 address inside an IPv6 one is written differently by different releases of Python.
        if address.scope_id is not None or address.ipv4_mapped is not None or host != address.compressed:
            raise MisuseError("write an IPv6 address in its shortest form, without a scope or an IPv4 address in it")
        return
    labels = host.split(".")
    if len(host) > MAX_HOST or not all(_LABEL.fullmatch(label) for label in labels):
        raise MisuseError(
            f"a host name has at most {MAX_HOST} lower-case letters, digits, hyphens and dots, without a scheme, "
            "port or trailing dot; write international names in their xn-- form"
        )
    if labels[-1].isdigit():
        # No top-level domain is a number, so that this can only be meant as an IPv4 address.
        try:
            IPv4Address(host)
        except AddressValueError:
            raise MisuseError("a host that ends in a number is an IPv4 address: four numbers up to 255") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """Where a queue lives.  The hosts are names of one server, the preferred one first."""

    hosts: tuple[str, ...]
    port: int
    fingerprint: bytes

    def __post_init__(self) -> None:
        if isinstance(self.hosts, str):
            raise MisuseError("hosts is a tuple of names, also for a single one: (name,)")
        if not 1 <= len(self.hosts) <= MAX_HOSTS:
            raise MisuseError(f"a server has 1 to {MAX_HOSTS} host names, not {len(self.hosts)}")
        if len(set(self.hosts)) != len(self.hosts):
            raise MisuseError("a host name is there twice; name each once")
        for host in self.hosts:
            check_host(host)
        if not 1 <= index(self.port) <= 0xFFFF:
            raise MisuseError(f"a port is a number from 1 to 65535, not {self.port}")
        if len(self.fingerprint) != FINGERPRINT_SIZE:
            raise MisuseError(f"a fingerprint has {FINGERPRINT_SIZE} bytes, not {len(self.fingerprint)}")

    def encode(self) -> bytes:
        """The bytes of this address inside a stored document."""
        names = b"".join(lv(host.encode("ascii")) for host in self.hosts)
        return self.fingerprint + u16(self.port) + u8(len(self.hosts)) + names

    @classmethod
    def read(cls, reader: Reader) -> ServerAddress:
        fingerprint = reader.take(FINGERPRINT_SIZE)
        port = reader.u16()
        try:
            # Latin-1 takes any byte; a host name with a byte beyond ASCII is then refused like any other.
            hosts = tuple(reader.lv().decode("latin-1") for _ in range(reader.u8()))
            return cls(hosts=hosts, port=port, fingerprint=fingerprint)
        except MisuseError as error:
            reader.fail(str(error))
