"""What must hold in every world, and what counts as a good end.

Each check raises `Violation` with a sentence that says which promise was broken.
"""

from __future__ import annotations

from typing import Any

from qsratchet.rotation import (
    Acknowledge,
    Connection,
    Deliver,
    Event,
    ForceRotation,
    Gap,
    GivenUp,
    Orphan,
    QueueAddress,
    Received,
    Receiving,
    Send,
    Sending,
    Tick,
)
from qsratchet.rotation.tables import HOLDING, MAY_HAVE_SWITCHED

from .shape import (
    ALICE,
    BOB,
    DEAD,
    KEY,
    MACHINES,
    MESSAGES,
    NAMES,
    OUTSTANDING,
    OWNER,
    QUEUES,
    REPLIES,
    SEEN,
    SERVER,
    SERVERS,
    STARTS,
    SUBMITS,
    SUSPENDED,
    Scenario,
    Violation,
    World,
    stream_number,
)


class Invariants:
    """The checks of a model; they look at the machines and the queues and change neither."""

    scenario: Scenario
    machines: list[Connection]
    values: list[Any]

    def _receiving(self, world: World, agent: int) -> Any:
        return self.machines[world[MACHINES][agent]]._receiving

    def _see(self, seen: Any, effect: Deliver | Gap | GivenUp | Orphan) -> Any:
        expected, numbers, named, gave_up, orphans = seen
        match effect:
            case Deliver():
                index = effect.body[0]
                if index >= len(numbers) or numbers[index] != effect.number:
                    raise Violation(f"number {effect.number} was delivered with the body {index}, which is not its own")
                if index < expected:
                    raise Violation(
                        f"body {index} was delivered after body {expected - 1}: a duplicate or out of order"
                    )
                missing = [body for body in range(expected, index) if numbers[body] not in named]
                if missing:
                    raise Violation(f"bodies {missing} were skipped, and no gap names them")
                return (index + 1, numbers, named, gave_up, orphans)
            case Gap():
                if not gave_up and not self.scenario.drop:
                    raise Violation(f"a gap was reported although nothing was given up: {effect}")
                if effect.first > effect.last:
                    raise Violation(f"a gap is empty: {effect}")
                return (expected, numbers, (*named, *range(effect.first, effect.last + 1)), gave_up, orphans)
            case GivenUp():
                return (expected, numbers, named, True, orphans)
            case Orphan():
                if effect.queue.sender_id in orphans:
                    raise Violation("an orphan was reported twice")
                return (expected, numbers, named, gave_up, (*orphans, effect.queue.sender_id))

    def _check(self, world: World) -> None:
        """What holds between the two machines at all times."""
        for agent in (ALICE, BOB):
            machine = self.machines[world[MACHINES][agent]]
            side = machine._receiving
            peer = self.machines[world[MACHINES][1 - agent]]._sending
            if peer.queue.address not in (side.queue.address, side.other) and not self._forgiven(world):
                may = peer.new is not None and peer.new.address == side.queue.address
                if not (may and peer.state in MAY_HAVE_SWITCHED):
                    raise Violation(f"{NAMES[1 - agent]} sends to a queue that {NAMES[agent]} has left")
            knows = peer.new is not None and peer.new.address == side.other and peer.state in MAY_HAVE_SWITCHED
            if side.state in HOLDING and peer.queue.address != side.other and not knows:
                raise Violation(f"{NAMES[agent]} is committed to a queue that {NAMES[1 - agent]} does not know")
            going_on = side.state is Receiving.READY or side.state in HOLDING
            if going_on and world[QUEUES][side.other.sender_id[0]][KEY] != 2 - agent:
                raise Violation(f"{NAMES[agent]} goes on with a queue that is not secured with the peer's key")
            if machine._held is not None and side.state not in HOLDING:
                raise Violation("a message is held without reason")

    def _excused(self, world: World) -> bool:
        """Whether a deadline may have to end something."""
        s = self.scenario
        return DEAD in world[SERVERS] or bool(s.aborts or s.forces or s.early_deadlines or s.drop or s.intruder)

    def _check_loss(self, world: World, agent: int, effect: Deliver | Gap | GivenUp | Orphan) -> None:
        if isinstance(effect, GivenUp) and not self._excused(world):
            raise Violation("a queue was given up although its server is alive")
        peer = self.machines[world[MACHINES][1 - agent]]._stream
        if isinstance(effect, Gap):
            current = self._receiving(world, agent).queue.address.sender_id[0]
            here = {stream_number(self.values[frame]) for _, frame in world[QUEUES][current][MESSAGES]}
            if effect.last > peer.last_accepted or here & set(range(effect.first, effect.last + 1)):
                raise Violation("a gap names a message that is still to come")

    def _forgiven(self, world: World) -> bool:
        """After something was given up, a party may have to find out by AUTH and its deadline."""
        return any(seen[3] for seen in world[SEEN]) or self.scenario.drop

    def _check_acknowledge(self, machine: Connection, effect: Acknowledge, event: Event) -> None:
        side = machine._receiving
        body = event.body if isinstance(event, Received) and event.queue == effect.queue else b""
        if side.state in HOLDING and effect.queue == side.other and body and stream_number(body):
            raise Violation("the first message of the new queue was acknowledged before the old queue was drained")

    def _check_suspend(self, world: World, agent: int, before: Connection, after: Connection, event: Event) -> None:
        if before._receiving.state in (Receiving.SUSPENDING, Receiving.DRAINING) or isinstance(
            event, (Tick, ForceRotation)
        ):
            return
        peer_switched = self.machines[world[MACHINES][1 - agent]]._sending.queue.address == after._receiving.other
        number = after._receiving.switch_number
        if not peer_switched and any(entry.number == number for entry in after._stream.outbox):
            raise Violation("the old queue is suspended before QSWITCH was accepted")

    def _check_suspended(self, world: World, agent: int, index: int) -> None:
        if self._receiving(world, agent).state not in (Receiving.SUSPENDING, Receiving.DRAINING, Receiving.DELETING,
                                                       Receiving.IDLE):  # fmt: skip
            raise Violation("a queue in use was suspended")

    def _check_delete(self, world: World, agent: int, index: int) -> None:
        queue, side = world[QUEUES][index], self._receiving(world, agent)
        gave_up = world[SEEN][agent][3]
        if index == side.queue.address.sender_id[0]:
            raise Violation("the receive queue was deleted")
        delivered = self.machines[world[MACHINES][agent]]._stream.delivered
        # What is still in the sender's outbox will come again through the new queue.
        sent = self.machines[world[MACHINES][1 - agent]]._stream.last_accepted
        elsewhere = {
            stream_number(self.values[frame])
            for other, kept in enumerate(world[QUEUES])
            if other != index and kept[OWNER] == agent
            for _, frame in kept[MESSAGES]
        }
        numbers = {stream_number(self.values[frame]) for _, frame in queue[MESSAGES]}
        undelivered = [number for number in numbers - elsewhere if delivered < number <= sent]
        if undelivered and not gave_up:
            raise Violation(f"a queue was deleted with {len(undelivered)} undelivered messages in it")
        if side.state is Receiving.DELETING and not queue[SUSPENDED] and not gave_up and side.last is None:
            raise Violation("the old queue was deleted before it was suspended")

    def _check_send(self, world: World, agent: int, index: int, effect: Send) -> None:
        owner = self._receiving(world, 1 - agent)
        number = stream_number(effect.frame)
        if number and owner.other == effect.queue and owner.state in (
            Receiving.OFFERED, Receiving.SECURING, Receiving.READY
        ):  # fmt: skip
            raise Violation("the stream went to the new queue before its owner was committed to it")
        sender = self.machines[world[MACHINES][agent]]
        if number and effect.queue != sender._sending.queue.address:
            # A request that was under way when the queue was left; the server may still take it.
            return
        if number and sum(isinstance(self.values[n], Send) and self.values[n].queue == effect.queue
                          and stream_number(self.values[n].frame) > 0
                          for n in world[OUTSTANDING][agent]):  # fmt: skip
            raise Violation("two messages of the stream are in flight in one queue")

    def ended(self, world: World) -> bool:
        """Whether everything that can come to an end has come to a good one."""
        if any(world[SUBMITS]) or any(world[STARTS]) or any(world[REPLIES]):
            return False
        for agent in (ALICE, BOB):
            machine = self.machines[world[MACHINES][agent]]
            sending = machine._sending
            if machine._receiving.state is not Receiving.IDLE or machine._held is not None:
                return False
            blocked = self._dead(world, sending.queue.address)
            waits = sending.state is Sending.HELLO_SENT and sending.new and self._dead(world, sending.new.address)
            reader = self.machines[world[MACHINES][1 - agent]]._receiving.queue.address
            # QSWITCH may be lost in a gap or on a dead server: then the sender finds out when it has something to send.
            unaware = (
                (self._forgiven(world) or DEAD in world[SERVERS])
                and sending.new is not None
                and sending.new.address == reader
            )
            if sending.state is not Sending.IDLE and not waits and not (unaware and sending.state in MAY_HAVE_SWITCHED):
                return False
            if machine._stream.outbox and not blocked:
                return False
            expected, numbers, named, gave_up, _ = world[SEEN][1 - agent]
            if self._dead(world, reader) or blocked or self.scenario.drop:
                continue
            missing = [number for number in numbers[expected:] if number not in named]
            if missing and not gave_up:
                return False
            if not unaware and sending.queue.address != reader:
                return False
        return True

    def _dead(self, world: World, queue: QueueAddress) -> bool:
        return bool(world[SERVERS][world[QUEUES][queue.sender_id[0]][SERVER]] == DEAD)
