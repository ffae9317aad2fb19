"""A random life of one link against a model: honest steps, drops, restarts, and a server that goes back in time."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from qsratchet.links import (
    BLOB_SIZES,
    BlobFault,
    BlobRejected,
    LinkKind,
    LinkMode,
    Opening,
    OwnerLink,
    Priority,
    SeenVersions,
    create_link,
    format_link,
    parse_link,
)

from .shelf import PQ, PROFILE, RATCHET, SERVER, Shelf

CONTENT = st.binary(max_size=64)


class LifeOfALink(RuleBasedStateMachine):
    """The model knows the history of each blob, and what each reader has seen of it."""

    readers = Bundle("readers")

    @initialize(kind=st.sampled_from(LinkKind), mode=st.sampled_from(LinkMode), content=CONTENT)
    def create(self, kind: LinkKind, mode: LinkMode, content: bytes) -> None:
        self.server = Shelf()
        self.owner, creation = create_link(server=SERVER, kind=kind, mode=mode, contents={RATCHET: content})
        self.server.answer(creation)
        self.text = format_link(self.owner.link)
        #: Every version of every blob: content and sealed bytes.
        self.history: dict[Priority, list[tuple[bytes, bytes]]] = {priority: [] for priority in Priority}
        self.history[RATCHET].append((content, creation.blobs[RATCHET]))
        #: The version that the server would return, by priority; 0 for none.
        self.shown = {RATCHET: 1, PQ: 0, PROFILE: 0}
        self.sender = Opening.start(parse_link(self.text)).dump()

    @property
    def blobs(self) -> dict[Priority, bytes]:
        return self.server.queues[self.owner.recipient_id].blobs

    @rule(target=readers)
    def arrive(self) -> list[SeenVersions | None]:
        return [None]

    @rule(contents=st.dictionaries(st.sampled_from(Priority), CONTENT, min_size=1))
    def update(self, contents: dict[Priority, bytes]) -> None:
        self.owner, request = self.owner.replace(contents)
        self.server.answer(request)
        for priority, content in contents.items():
            self.history[priority].append((content, request.blobs[priority]))
            self.shown[priority] = len(self.history[priority])

    @rule(priority=st.sampled_from([PQ, PROFILE]))
    def drop(self, priority: Priority) -> None:
        self.blobs.pop(priority, None)
        self.shown[priority] = 0

    @rule(priority=st.sampled_from(Priority), data=st.data())
    def go_back_in_time(self, priority: Priority, data: st.DataObject) -> None:
        if self.history[priority]:
            version = data.draw(st.integers(1, len(self.history[priority])))
            self.blobs[priority] = self.history[priority][version - 1][1]
            self.shown[priority] = version

    @rule()
    def restart(self) -> None:
        self.owner = OwnerLink.load(self.owner.dump())
        self.sender = Opening.load(self.sender).dump()

    @rule(reader=readers)
    def read(self, reader: list[SeenVersions | None]) -> None:
        opening, seen = Opening.load(self.sender), reader[0]
        known = {priority: 0 if seen is None else seen.version(priority) for priority in Priority}
        stale = [priority for priority in Priority if 0 < self.shown[priority] < known[priority]]
        reply = self.server.answer(opening.request)
        try:
            opened = opening.open(reply, seen=seen)
        except BlobRejected as error:
            assert (error.priority, error.fault) == (stale[0], BlobFault.ROLLED_BACK)  # noqa: PT017
            return
        assert not stale
        assert opened.contents == {
            priority: self.history[priority][version - 1][0] for priority, version in self.shown.items() if version
        }
        for priority in Priority:
            assert opened.seen.version(priority) == max(known[priority], self.shown[priority])
        reader[0] = SeenVersions.load(opened.seen.dump())

    @invariant()
    def the_link_never_changes_and_the_sizes_neither(self) -> None:
        assert format_link(self.owner.link) == self.text
        sizes = BLOB_SIZES[self.owner.kind]
        assert all(len(blob) == sizes[priority] for priority, blob in self.blobs.items())

    @invariant()
    def the_owner_knows_the_newest_versions(self) -> None:
        assert self.owner.versions == tuple(len(self.history[priority]) for priority in Priority)


TestLifeOfALink = LifeOfALink.TestCase
TestLifeOfALink.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
