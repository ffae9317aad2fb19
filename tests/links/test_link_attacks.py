"""Attacks: a link holder and the server together, and the server alone."""

from __future__ import annotations

import os

import pytest

from qsratchet.crypto.entropy import Entropy
from qsratchet.crypto.signing import SigningKey
from qsratchet.links import BlobFault, Link, LinkKind, LinkMode, Opening, OwnerLink, Priority, create_link
from qsratchet.links.blobs import Blob, FixedData, _unseal, open_first_blob, seal_blob

from .shelf import BOTH_KINDS, BOTH_MODES, CONTENTS, PROFILE, RATCHET, SERVER, fault_of, make

PRIORITIES = tuple(Priority)
EVIL = b"keys of the attacker"


def forge(
    link: Link,
    priority: Priority,
    *,
    signing_key: SigningKey | None = None,
    fixed_data: FixedData | None = None,
    version: int = 2,
) -> bytes:
    """Seal a blob with nothing but what the attackers have: the link, and what they make up."""
    blob = Blob(priority=priority, version=version, content=EVIL)
    return seal_blob(link, link.keys(), blob, os.urandom, signing_key=signing_key, fixed_data=fixed_data)


@pytest.mark.parametrize("kind", BOTH_KINDS)
@pytest.mark.parametrize("priority", PRIORITIES)
def test_a_link_holder_and_the_server_forge_a_blob_of_a_direct_link(kind: LinkKind, priority: Priority) -> None:
    """The known weakness of direct links, kept as a test so that the documents stay true."""
    owner, blobs = make(kind, LinkMode.DIRECT)
    blobs[priority] = forge(owner.link, priority)
    opened = Opening.start(owner.link).open(blobs)
    assert opened.contents[priority] == EVIL
    assert opened.owner_key is None


@pytest.mark.parametrize("kind", BOTH_KINDS)
@pytest.mark.parametrize("priority", PRIORITIES)
def test_a_link_holder_and_the_server_cannot_forge_a_blob_of_a_bound_link(kind: LinkKind, priority: Priority) -> None:
    owner, blobs = make(kind, LinkMode.BOUND)
    link, evil_key = owner.link, SigningKey.generate()
    # A link holder can read the fixed data, so the attackers have the real one.
    _, real = open_first_blob(link, link.keys(), blobs[RATCHET])
    assert real is not None
    own = FixedData(context=real.context, k=real.k, owner_key=evil_key.public())
    unsigned_fault = BlobFault.FIXED_DATA if priority is RATCHET else BlobFault.LAYOUT
    own_fault = BlobFault.FIXED_DATA if priority is RATCHET else BlobFault.SIGNATURE
    for forged, fault in (
        (forge(link, priority), unsigned_fault),
        (forge(link, priority, signing_key=evil_key, fixed_data=real), BlobFault.SIGNATURE),
        (forge(link, priority, signing_key=evil_key, fixed_data=own), own_fault),
    ):
        assert fault_of(link, {**blobs, priority: forged}) == (priority, fault)


class Recording(SigningKey):
    """An attacker's "key" that gives a signature which the owner once made."""

    __slots__ = ("signature",)

    def __init__(self, signature: bytes) -> None:
        super().__init__(bytes(32))
        self.signature = signature

    def sign(self, message: object) -> bytes:
        return self.signature


def signature_in(owner: OwnerLink, priority: Priority, blob: bytes) -> bytes:
    """What a link holder reads in a sealed blob: the owner's signature."""
    payload = _unseal(owner.link, owner.link.keys(), priority, blob)
    start = 8 + (99 if priority is RATCHET else 0)
    return payload[start : start + 64]


@pytest.mark.parametrize("priority", PRIORITIES)
def test_a_signature_of_the_owner_serves_no_other_content_version_priority_or_link(priority: Priority) -> None:
    owner, blobs = make(LinkKind.CONTACT, LinkMode.BOUND, dict.fromkeys(Priority, EVIL))
    link = owner.link
    _, fixed_data = open_first_blob(link, link.keys(), blobs[RATCHET])
    good = Recording(signature_in(owner, priority, blobs[priority]))
    # The harness is right: with the version that was signed, the same call makes a blob that opens.
    again = forge(link, priority, signing_key=good, fixed_data=fixed_data, version=1)
    assert Opening.start(link).open({**blobs, priority: again}).contents[priority] == EVIL
    # Another version.
    newer = forge(link, priority, signing_key=good, fixed_data=fixed_data, version=2)
    assert fault_of(link, {**blobs, priority: newer}) == (priority, BlobFault.SIGNATURE)
    # Another priority: the same content and version were signed there.
    for other in set(Priority) - {priority}:
        moved = forge(link, other, signing_key=good, fixed_data=fixed_data, version=1)
        assert fault_of(link, {**blobs, other: moved}) == (other, BlobFault.SIGNATURE)
    # Other content.
    changed = Blob(priority=priority, version=1, content=EVIL + b"!")
    sealed = seal_blob(link, link.keys(), changed, os.urandom, signing_key=good, fixed_data=fixed_data)
    assert fault_of(link, {**blobs, priority: sealed}) == (priority, BlobFault.SIGNATURE)


@pytest.mark.parametrize("priority", PRIORITIES)
def test_a_signature_serves_no_other_link_of_the_same_signing_key(priority: Priority) -> None:
    """Two links never share a signing key; if they did, signatures would still stay in their link."""
    seed, contents = bytes(range(32)), dict.fromkeys(Priority, EVIL)

    def entropy() -> Entropy:
        calls = 0

        def take(size: int) -> bytes:
            nonlocal calls
            calls += 1
            # The fifth draw is the seed of the signing key: recipient ID and three other keys come first.
            return seed if calls == 5 else os.urandom(size)

        return take

    first, creation = create_link(server=SERVER, kind=LinkKind.CONTACT, contents=contents, entropy=entropy())
    second, other = create_link(server=SERVER, kind=LinkKind.CONTACT, contents=contents, entropy=entropy())
    assert first.signing_key is not None
    assert second.signing_key is not None
    assert first.signing_key.public() == second.signing_key.public()
    stolen = Recording(signature_in(first, priority, creation.blobs[priority]))
    link = second.link
    _, fixed_data = open_first_blob(link, link.keys(), other.blobs[RATCHET])
    forged = forge(link, priority, signing_key=stolen, fixed_data=fixed_data, version=1)
    assert fault_of(link, {**other.blobs, priority: forged}) == (priority, BlobFault.SIGNATURE)


@pytest.mark.parametrize("mode", BOTH_MODES)
@pytest.mark.parametrize("priority", PRIORITIES)
def test_a_server_cannot_roll_a_blob_back_for_somebody_who_saw_the_newer_one(
    mode: LinkMode, priority: Priority
) -> None:
    owner, old = make(LinkKind.CONTACT, mode)
    owner, request = owner.replace({priority: b"newer"})
    new = {**old, **request.blobs}
    opening = Opening.start(owner.link)
    seen = opening.open(new).seen
    assert fault_of(owner.link, old, seen) == (priority, BlobFault.ROLLED_BACK)
    # Somebody who never saw the newer one cannot know; and the newer one goes on opening.
    assert opening.open(old).contents == CONTENTS
    assert opening.open(new, seen=seen).seen == seen


@pytest.mark.parametrize("mode", BOTH_MODES)
def test_one_version_number_with_two_contents_is_called_a_fork(mode: LinkMode) -> None:
    owner, blobs = make(LinkKind.CONTACT, mode)
    _, one = owner.replace({PROFILE: b"one"})
    _, two = owner.replace({PROFILE: b"two"})
    seen = Opening.start(owner.link).open({**blobs, **one.blobs}).seen
    assert fault_of(owner.link, {**blobs, **two.blobs}, seen) == (PROFILE, BlobFault.FORKED)


def test_an_owner_restored_from_a_backup_goes_on_after_the_versions_that_readers_saw() -> None:
    owner, blobs = make()
    backup = owner.dump()
    for number in range(3):
        owner, request = owner.replace({PROFILE: b"%d" % number})
    seen = Opening.start(owner.link).open({**blobs, **request.blobs}).seen
    restored = OwnerLink.load(backup)
    _, stale = restored.replace({PROFILE: b"restored"})
    assert fault_of(owner.link, {**blobs, **stale.blobs}, seen) == (PROFILE, BlobFault.ROLLED_BACK)
    restored, fresh = restored.replace({PROFILE: b"restored"}, after=seen.version(PROFILE))
    opened = Opening.start(owner.link).open({**blobs, **fresh.blobs}, seen=seen)
    assert opened.contents[PROFILE] == b"restored"
    assert opened.seen.version(PROFILE) == restored.versions[PROFILE] == 5
