"""Short links at the real service: a stranger who has the link gets the keys, once or as often as it likes."""

from __future__ import annotations

import os

import pytest

from examples.queuing_service.client import Client
from examples.queuing_service.protocol import Fault, Refusal
from qsratchet import Dequeuer
from qsratchet.links import (
    FetchBlobs,
    LinkKind,
    Opening,
    OwnerLink,
    Priority,
    SecureQueue,
    ServerAddress,
    create_link,
    format_link,
    parse_link,
)
from qsratchet.records import Usage

from .processes import SERVICE_ID, Running

CONTENTS = {Priority.RATCHET_KEYS: b"ratchet keys", Priority.PQ_KEYS: b"pq keys", Priority.PROFILE: b"Alice"}


class Alice:
    """An owner with a link to its queue at the service."""

    def __init__(self, service: Running, kind: LinkKind) -> None:
        server = ServerAddress(hosts=("127.0.0.1",), port=service.port, fingerprint=bytes(32))
        self.link: OwnerLink
        self.link, request = create_link(server=server, kind=kind, contents=CONTENTS)
        self.machine, creation = Dequeuer.create(SERVICE_ID, request.recipient_id)
        self.client = service.client(self.link.server_signing_key)
        usage = Usage.MESSAGING if kind is LinkKind.ONE_TIME else Usage.CONTACT
        blobs = {int(priority): blob for priority, blob in request.blobs.items()}
        self.client.create(request.recipient_id, creation, request.sender_id, usage, blobs)


def opened(service: Running, opening: Opening) -> dict[Priority, bytes]:
    """Send the request of an opening, and open what comes back."""
    request = opening.request
    client = service.client(opening.sender_key)
    match request:
        case SecureQueue():
            blobs = client.secure(request.sender_id, request.sender_key)
        case FetchBlobs():
            blobs = client.blobs(request.sender_id)
    return dict(opening.open({Priority(priority): blob for priority, blob in blobs.items()}).contents)


def test_a_one_time_link_opens_for_one_person_who_may_come_back(service: Running) -> None:
    alice = Alice(service, LinkKind.ONE_TIME)
    opening = Opening.start(parse_link(format_link(alice.link.link)))
    assert opened(service, opening) == CONTENTS
    assert opened(service, Opening.load(opening.dump())) == CONTENTS
    with pytest.raises(Refusal) as raised:
        opened(service, Opening.start(alice.link.link))
    assert raised.value.fault is Fault.AUTH


def test_a_message_through_a_one_time_link_reaches_its_owner_and_ends_the_link(service: Running) -> None:
    alice = Alice(service, LinkKind.ONE_TIME)
    opening = Opening.start(alice.link.link)
    opened(service, opening)
    assert opening.sender_key is not None
    sender_id = opening.request.sender_id
    bob = Client(service.exchange(), SERVICE_ID, opening.sender_key)
    bob.enqueue(sender_id, os.urandom(16), b"hello Alice")
    frames = alice.client.fetch(alice.link.recipient_id, 0).frames
    bodies = [getattr(alice.machine.open(frame), "body", None) for frame in frames]
    assert bodies == [None, b"hello Alice"]
    assert bob.blobs(sender_id) == {}


def test_a_contact_link_opens_for_everybody_and_shows_what_its_owner_replaced(service: Running) -> None:
    alice = Alice(service, LinkKind.CONTACT)
    assert opened(service, Opening.start(alice.link.link)) == CONTENTS
    alice.link, request = alice.link.replace({Priority.PROFILE: b"Alice B."})
    alice.client.store_blobs(request.recipient_id, {int(priority): blob for priority, blob in request.blobs.items()})
    for _ in range(2):
        assert opened(service, Opening.start(alice.link.link))[Priority.PROFILE] == b"Alice B."


def test_a_revoked_link_leads_nowhere(service: Running) -> None:
    alice = Alice(service, LinkKind.CONTACT)
    alice.client.delete(alice.link.revoke().recipient_id)
    with pytest.raises(Refusal) as raised:
        opened(service, Opening.start(alice.link.link))
    assert raised.value.fault is Fault.AUTH
