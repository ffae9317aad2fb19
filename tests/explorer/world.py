"""A world for two shipped connections: three or more servers, requests and replies in flight, and faults.

A world is a tuple of small integers and tuples, so it can be fingerprinted; the machines, effects and events
it speaks of are kept in tables by number.  `Model.moves` gives every move that is possible in a world, and
raises `Violation` when a move breaks an invariant.  The machines are the shipped ones; only the servers and
the network are modelled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from qsratchet.crypto.signing import SigningKey
from qsratchet.errors import MisuseError
from qsratchet.rotation import (
    AbortRotation,
    Accepted,
    Acknowledge,
    Connection,
    CreateQueue,
    Deleted,
    DeleteQueue,
    Deliver,
    Effect,
    Ended,
    Equivocation,
    Event,
    Failed,
    Failure,
    ForceRotation,
    Gap,
    GivenUp,
    Malformed,
    Orphan,
    Outcome,
    Patience,
    QueueAddress,
    QueueCreated,
    QueueEmpty,
    Received,
    ReceiveQueue,
    Receiving,
    Replay,
    Secured,
    SecureQueue,
    Send,
    Sending,
    SendQueue,
    StartRotation,
    Submit,
    Subscribe,
    Suspended,
    SuspendQueue,
    Tick,
)
from qsratchet.rotation.messages import decode_frame
from qsratchet.rotation.tables import HOLDING, MAY_HAVE_SWITCHED

UP, DOWN, DEAD = 0, 1, 2
ALICE, BOB = 0, 1
NAMES = ("Alice", "Bob")

#: One queue: owner, server, is there, key (0 none), suspended, messages as (id, frame), next id, subscribed, pushed.
Queue: TypeAlias = tuple[int, int, bool, int, bool, tuple[tuple[int, int], ...], int, bool, bool]
OWNER, SERVER, THERE, KEY, SUSPENDED, MESSAGES, NEXT, SUBSCRIBED, PUSHED = range(9)
#: What an agent received: next body expected, numbers of the peer's bodies, numbers named in gaps, gave up, orphans.
World: TypeAlias = tuple[Any, ...]
MACHINES, TODO, REPLIES, QUEUES, SERVERS, SUBMITS, STARTS, ABORTS, FAULTS, SEEN = range(10)


class Violation(Exception):
    """An invariant does not hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is explored: how much each agent does, how many faults, and which kinds."""

    name: str
    submits: tuple[int, int] = (1, 1)
    starts: tuple[int, int] = (1, 0)
    faults: int = 1
    aborts: int = 0
    forces: bool = False
    early_deadlines: bool = False
    crash: bool = True
    lost_reply: bool = True
    repeat: bool = False
    outage: bool = False
    #: The servers that may die for good: 0 and 1 have the first queues, the new ones follow.
    death: tuple[int, ...] = ()
    drop: bool = False
    #: Somebody else secures a queue that is not secured yet.
    intruder: bool = False
    fast: tuple[bool, bool] = (False, False)
    #: How a server tells that a queue is drained: by a flag on the last message, or by an empty reply only.
    flag: bool = True
    #: Whether empty replies also come from queues that are not suspended, and so may be out of date.
    eager_empty: bool = False
    capacity: int = 3
    #: Replies are never under way: a request, its work and its reply are one move.  Far fewer worlds, for long runs.
    atomic: bool = False


def entropy_of(agent: int) -> Any:
    """Keys that are a function of the agent alone, so that equal worlds are equal."""
    return lambda size: bytes([agent + 1]) * size


_SERVER_KEYS = tuple(SigningKey(entropy_of(agent)(32)).public() for agent in (ALICE, BOB))


def address(number: int) -> QueueAddress:
    return QueueAddress(server=f"s{number}", sender_id=bytes([number]) * 24)


class Model:
    """The moves of one scenario."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.machines: list[Connection] = []
        self._dumps: dict[Any, int] = {}
        self.values: list[Any] = []
        self._numbers: dict[Any, int] = {}
        self._steps: dict[tuple[int, Any], tuple[int, tuple[Effect, ...]]] = {}
        self._labels: dict[int, str] = {}
        self._restarts: dict[int, tuple[int, tuple[Effect, ...]]] = {}

    # --- numbers for things ----------------------------------------------------------------------

    def number(self, value: Any) -> int:
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = len(self.values)
            self.values.append(value)
        return found

    def label(self, number: int) -> str:
        found = self._labels.get(number)
        if found is None:
            found = self._labels[number] = _short(self.values[number])
        return found

    def adopt(self, connection: Connection) -> int:
        key = (connection.dump(), connection._held)
        found = self._dumps.get(key)
        if found is None:
            found = self._dumps[key] = len(self.machines)
            self.machines.append(connection)
        return found

    def copy(self, connection: Connection) -> Connection:
        clone = Connection.__new__(Connection)
        for slot in Connection.__slots__:
            setattr(clone, slot, getattr(connection, slot))
        return clone

    def start(self) -> World:
        machines, queues = [], []
        for agent in (ALICE, BOB):
            connection = Connection(
                receive=ReceiveQueue(address=address(agent)),
                send=SendQueue(address=address(1 - agent)),
                fast=self.scenario.fast[agent],
                # Every deadline is due at once, and the model chooses when it passes: so no world has a clock in it.
                patience=Patience(server=0, peer=0, drain=0, park=0),
                entropy=entropy_of(agent),
            )
            machines.append(self.adopt(connection))
            # Servers 0 and 1 have the first queues: R and S.  The new queues get servers of their own.
            queues.append((agent, agent, True, 2 - agent, False, (), 0, True, False))
        seen = (0, (), (), False, ())
        s = self.scenario
        return (
            tuple(machines), ((), ()), ((), ()), tuple(queues), (UP, UP),
            s.submits, s.starts, s.aborts, s.faults, (seen, seen),
        )  # fmt: skip

    # --- moves -----------------------------------------------------------------------------------

    def moves(self, world: World) -> Iterator[tuple[str, bool, World]]:
        """Every move: what it is, whether it is a fault, and where it leads."""
        for label, after in self.free_moves(world):
            yield label, False, after
        for label, after in self.fault_moves(world):
            yield label, True, after

    def free_moves(self, world: World) -> Iterator[tuple[str, World]]:
        """What happens by itself.  Deadlines pass when nothing else can happen."""
        idle = True
        for label, after in self._free_moves(world):
            idle = False
            yield label, after
        if idle:
            yield from self._ticks(world)

    def fault_moves(self, world: World) -> Iterator[tuple[str, World]]:
        """What may go wrong, as long as faults are left."""
        if world[FAULTS] > 0:
            poorer = _with(world, FAULTS, world[FAULTS] - 1)
            yield from self._fault_moves(poorer)
            if self.scenario.early_deadlines:
                for label, after in self._ticks(poorer):
                    yield f"early {label}", after

    def _free_moves(self, world: World) -> Iterator[tuple[str, World]]:
        for agent in (ALICE, BOB):
            who = NAMES[agent]
            for effect in world[TODO][agent]:
                after = self._run(world, agent, effect, reply=True)
                if after is not None:
                    yield f"{who} runs {self.label(effect)}", after
            previous = None
            for event in world[REPLIES][agent]:
                if event != previous:
                    after = _with_item(world, REPLIES, agent, _without(world[REPLIES][agent], event))
                    yield f"{who} gets {self.label(event)}", self._step(after, agent, self.values[event])
                previous = event
            if world[SUBMITS][agent]:
                index = self.scenario.submits[agent] - world[SUBMITS][agent]
                after = _with_item(world, SUBMITS, agent, world[SUBMITS][agent] - 1)
                peer = after[SEEN][1 - agent]
                number = self.machines[world[MACHINES][agent]]._stream.next_number
                after = _with_item(after, SEEN, 1 - agent, (peer[0], (*peer[1], number), *peer[2:]))
                yield f"{who} submits {index}", self._step(after, agent, Submit(body=bytes([index])))
            if world[STARTS][agent] and self._receiving(world, agent).state is Receiving.IDLE:
                after = _with_item(world, STARTS, agent, world[STARTS][agent] - 1)
                yield f"{who} starts", self._step(after, agent, StartRotation(server="new"))
        for index, queue in enumerate(world[QUEUES]):
            if queue[MESSAGES] and queue[SUBSCRIBED] and not queue[PUSHED] and world[SERVERS][queue[SERVER]] == UP:
                yield f"queue {index} pushes", self._push(world, index)
        for server, state in enumerate(world[SERVERS]):
            if state == DOWN:
                yield f"server {server} is back", _with_item(world, SERVERS, server, UP)

    def _ticks(self, world: World) -> Iterator[tuple[str, World]]:
        for agent in (ALICE, BOB):
            if self.machines[world[MACHINES][agent]].next_deadline is not None:
                after = self._step(world, agent, Tick())
                if after != world:
                    yield f"deadline of {NAMES[agent]}", after

    def _fault_moves(self, world: World) -> Iterator[tuple[str, World]]:
        s = self.scenario
        for agent in (ALICE, BOB):
            who = NAMES[agent]
            if s.crash:
                yield f"{who} crashes", self._crash(world, agent)
            for effect in world[TODO][agent]:
                value = self.values[effect]
                if s.lost_reply:
                    after = self._run(world, agent, effect, reply=False)
                    if after is not None:
                        yield f"{who} runs {self.label(effect)}, no reply", after
                    if isinstance(value, Acknowledge):
                        lost = _with_item(world, TODO, agent, _without(world[TODO][agent], effect))
                        yield f"{who} loses {self.label(effect)}", self._todo(lost, agent, Subscribe(queue=value.queue))
                if s.repeat:
                    after = self._run(world, agent, effect, reply=True)
                    again = (
                        None if after is None else self._run(self._todo(after, agent, value), agent, effect, reply=True)
                    )
                    if again is not None:
                        yield f"{who} runs twice {self.label(effect)}", after
            if s.repeat:
                for event in world[REPLIES][agent]:
                    after = _with_item(world, REPLIES, agent, _without(world[REPLIES][agent], event))
                    value = self.values[event]
                    if isinstance(value, QueueCreated):
                        # An answer that nobody waits for any more is reported each time it comes.
                        continue
                    yield (
                        f"{who} gets twice {self.label(event)}",
                        self._step(self._step(after, agent, value), agent, value),
                    )
            if world[ABORTS]:
                yield from self._user(_with(world, ABORTS, world[ABORTS] - 1), agent, AbortRotation())
            if s.forces:
                yield from self._user(world, agent, ForceRotation())
        for server, state in enumerate(world[SERVERS]):
            if s.outage and state == UP:
                yield f"server {server} goes down", _with_item(world, SERVERS, server, DOWN)
            if server in s.death and state == UP:
                yield f"server {server} dies", _with_item(world, SERVERS, server, DEAD)
        if s.intruder:
            for index, queue in enumerate(world[QUEUES]):
                if not queue[KEY]:
                    yield f"an intruder secures queue {index}", self._queue(world, index, {KEY: 9})
        if s.drop:
            for index, queue in enumerate(world[QUEUES]):
                if queue[MESSAGES] and not queue[PUSHED]:
                    yield f"queue {index} loses a message", self._queue(world, index, {MESSAGES: queue[MESSAGES][1:]})

    def _user(self, world: World, agent: int, event: Event) -> Iterator[tuple[str, World]]:
        try:
            yield f"{NAMES[agent]}: {type(event).__name__}", self._step(world, agent, event)
        except MisuseError:
            return

    # --- one step of a machine -------------------------------------------------------------------

    def _receiving(self, world: World, agent: int) -> Any:
        return self.machines[world[MACHINES][agent]]._receiving

    def _step(self, world: World, agent: int, event: Event) -> World:
        before = world[MACHINES][agent]
        key = (before, event)
        known = self._steps.get(key)
        if known is None:
            connection = self.copy(self.machines[before])
            effects = connection.step(event, 0)
            known = self._steps[key] = (self.adopt(connection), effects)
        after, effects = known
        world = _with_item(world, MACHINES, agent, after)
        if effects:
            world = self._effects(world, agent, effects, event, before)
        if after != before:
            self._check(world)
        return world

    def _effects(self, world: World, agent: int, effects: tuple[Effect, ...], event: Event, before: int) -> World:
        machine = self.machines[world[MACHINES][agent]]
        for effect in effects:
            match effect:
                case Deliver() | Gap() | GivenUp() | Orphan():
                    self._check_loss(world, agent, effect)
                    world = _with_item(world, SEEN, agent, self._see(world[SEEN][agent], effect))
                case Equivocation() | Replay() | Malformed():
                    raise Violation(f"an honest peer was accused: {effect}")
                case Ended():
                    if effect.outcome in (Outcome.TIMED_OUT, Outcome.FORCED) and not self._excused(world):
                        raise Violation(
                            f"a rotation ended by a deadline although nothing was in its way: {effect.outcome}"
                        )
                case Acknowledge():
                    self._check_acknowledge(machine, effect, event)
                    world = self._todo(world, agent, effect)
                case CreateQueue() | SecureQueue() | SuspendQueue() | DeleteQueue() | Send() | Subscribe():
                    if isinstance(effect, SuspendQueue):
                        self._check_suspend(world, agent, self.machines[before], machine, event)
                    world = self._todo(world, agent, effect)
                case _:
                    pass
        return world

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

    def _todo(self, world: World, agent: int, effect: Effect) -> World:
        number = self.number(effect)
        todo = world[TODO][agent]
        return world if number in todo else _with_item(world, TODO, agent, tuple(sorted((*todo, number))))

    # --- servers ---------------------------------------------------------------------------------

    def _queue(self, world: World, index: int, changes: dict[int, Any]) -> World:
        queue = list(world[QUEUES][index])
        for field, value in changes.items():
            queue[field] = value
        return _with_item(world, QUEUES, index, tuple(queue))

    def _push(self, world: World, index: int) -> World:
        queue = world[QUEUES][index]
        message_id, frame = queue[MESSAGES][0]
        last = self.scenario.flag and queue[SUSPENDED] and len(queue[MESSAGES]) == 1
        event = Received(queue=address(index), message_id=bytes([message_id]), body=self.values[frame], last=last)
        return self._reply(self._queue(world, index, {PUSHED: True}), queue[OWNER], event)

    def _reply(self, world: World, agent: int, event: Event) -> World:
        if self.scenario.atomic:
            return self._step(world, agent, event)
        replies = tuple(sorted((*world[REPLIES][agent], self.number(event))))
        return _with_item(world, REPLIES, agent, replies)

    def _run(self, world: World, agent: int, number: int, *, reply: bool) -> World | None:
        """Carry an effect out on its server; None when the server cannot be reached."""
        effect = self.values[number]
        if isinstance(effect, CreateQueue):
            if len(world[QUEUES]) >= 60:
                return None
            done = _with_item(world, TODO, agent, _without(world[TODO][agent], number))
            index = len(world[QUEUES])
            done = _with(done, QUEUES, (*done[QUEUES], (agent, index, True, 0, False, (), 0, False, False)))
            done = _with(done, SERVERS, (*done[SERVERS], UP))
            event: Event | None = QueueCreated(effect=effect.id, queue=address(index))
        else:
            index = effect.queue.sender_id[0]
            if world[SERVERS][world[QUEUES][index][SERVER]] != UP:
                return None
            if isinstance(effect, Send) and self._full(world, index):
                # Asking the machine shows that it keeps the message; the world stays as it is.
                if self._step(world, agent, Failed(effect=effect.id, failure=Failure.QUOTA)) != world:
                    raise Violation("a full queue changed something")
                return None
            done = _with_item(world, TODO, agent, _without(world[TODO][agent], number))
            done, event = self._serve(done, agent, index, effect)
        if event is None:
            return done
        if reply:
            return self._reply(done, agent, event)
        if isinstance(effect, (Acknowledge, Subscribe)):
            # The host lost its line to the server, and subscribes again when it is back.
            return self._todo(done, agent, Subscribe(queue=effect.queue))
        return self._step(done, agent, Failed(effect=effect.id, failure=Failure.UNKNOWN))

    def _full(self, world: World, index: int) -> bool:
        queue = world[QUEUES][index]
        return bool(queue[THERE] and not queue[SUSPENDED] and len(queue[MESSAGES]) >= self.scenario.capacity)

    def _serve(self, world: World, agent: int, index: int, effect: Any) -> tuple[World, Event | None]:
        queue = world[QUEUES][index]
        there = queue[THERE]
        if isinstance(effect, (Subscribe, Acknowledge)):
            if not there:
                return world, None
            changes: dict[int, Any] = {SUBSCRIBED: True, PUSHED: False}
            messages = queue[MESSAGES]
            if isinstance(effect, Acknowledge) and messages and messages[0][0] == effect.message_id[0]:
                messages = changes[MESSAGES] = messages[1:]
            after = self._queue(world, index, changes)
            empty = not messages and (queue[SUSPENDED] or self.scenario.eager_empty)
            return after, QueueEmpty(queue=effect.queue) if empty else None
        refused = Failed(effect=effect.id, failure=Failure.AUTH)
        if not there:
            return world, refused
        match effect:
            case SecureQueue():
                key = 1 if effect.server_key == self._server_key(ALICE) else 2
                if queue[KEY] not in (0, key):
                    return world, refused
                return self._queue(world, index, {KEY: key}), Secured(effect=effect.id)
            case SuspendQueue():
                self._check_suspended(world, agent, index)
                after = self._queue(world, index, {SUSPENDED: True})
                return after, Suspended(effect=effect.id, remaining=len(queue[MESSAGES]))
            case DeleteQueue():
                self._check_delete(world, agent, index)
                after = self._queue(world, index, {THERE: False, MESSAGES: (), SUBSCRIBED: False, PUSHED: False})
                return after, Deleted(effect=effect.id)
            case Send():
                if queue[SUSPENDED] or queue[KEY] != agent + 1:
                    return world, refused
                self._check_send(world, agent, index, effect)
                message = (queue[NEXT], self.number(effect.frame))
                changes = {MESSAGES: (*queue[MESSAGES], message), NEXT: (queue[NEXT] + 1) % 8}
                return self._queue(world, index, changes), Accepted(effect=effect.id)
            case _:
                raise AssertionError(effect)

    def _server_key(self, agent: int) -> bytes:
        return _SERVER_KEYS[agent]

    def _crash(self, world: World, agent: int) -> World:
        """What was stored is all that is left: the held message, requests and replies are gone."""
        before = world[MACHINES][agent]
        known = self._restarts.get(before)
        if known is None:
            machine = self.machines[before]
            connection = Connection.load(machine.dump(), patience=machine._patience, entropy=machine._entropy)
            known = self._restarts[before] = (self.adopt(connection), connection.resume())
        after, effects = known
        world = _with_item(world, MACHINES, agent, after)
        world = _with_item(_with_item(world, TODO, agent, ()), REPLIES, agent, ())
        for index, queue in enumerate(world[QUEUES]):
            if queue[OWNER] == agent:
                world = self._queue(world, index, {SUBSCRIBED: False, PUSHED: False})
        for effect in effects:
            world = self._todo(world, agent, effect)
        return world

    # --- invariants ------------------------------------------------------------------------------

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
        if isinstance(effect, Gap) and effect.last > peer.last_accepted:
            raise Violation("a gap names a message that is still to come")

    def _forgiven(self, world: World) -> bool:
        """After something was given up, a party may have to find out by AUTH and its deadline."""
        return any(seen[3] for seen in world[SEEN]) or self.scenario.drop

    def _check_acknowledge(self, machine: Connection, effect: Acknowledge, event: Event) -> None:
        side = machine._receiving
        body = event.body if isinstance(event, Received) and event.queue == effect.queue else b""
        if side.state in HOLDING and effect.queue == side.other and body and _stream_number(body):
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
            _stream_number(self.values[frame])
            for other, kept in enumerate(world[QUEUES])
            if other != index and kept[OWNER] == agent
            for _, frame in kept[MESSAGES]
        }
        numbers = {_stream_number(self.values[frame]) for _, frame in queue[MESSAGES]}
        undelivered = [number for number in numbers - elsewhere if delivered < number <= sent]
        if undelivered and not gave_up:
            raise Violation(f"a queue was deleted with {len(undelivered)} undelivered messages in it")
        if side.state is Receiving.DELETING and not queue[SUSPENDED] and not gave_up and side.last is None:
            raise Violation("the old queue was deleted before it was suspended")

    def _check_send(self, world: World, agent: int, index: int, effect: Send) -> None:
        owner = self._receiving(world, 1 - agent)
        number = _stream_number(effect.frame)
        if number and owner.other == effect.queue and owner.state in (
            Receiving.OFFERED, Receiving.SECURING, Receiving.READY
        ):  # fmt: skip
            raise Violation("the stream went to the new queue before its owner was committed to it")
        sender = self.machines[world[MACHINES][agent]]
        if number and effect.queue != sender._sending.queue.address:
            # A request that was under way when the queue was left; the server may still take it.
            return
        if number and sum(isinstance(self.values[n], Send) and self.values[n].queue == effect.queue
                          and _stream_number(self.values[n].frame) > 0
                          for n in world[TODO][agent]):  # fmt: skip
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


def _with(world: World, field: int, value: Any) -> World:
    return (*world[:field], value, *world[field + 1 :])


def _with_item(world: World, field: int, index: int, value: Any) -> World:
    items = world[field]
    return (*world[:field], (*items[:index], value, *items[index + 1 :]), *world[field + 1 :])


def _without(items: tuple[int, ...], item: int) -> tuple[int, ...]:
    position = items.index(item)
    return (*items[:position], *items[position + 1 :])


def _stream_number(frame: bytes) -> int:
    return int.from_bytes(frame[1:9], "big")


def _short(value: Any) -> str:
    name = type(value).__name__
    number = ""
    frame = getattr(value, "frame", None) or getattr(value, "body", None)
    if frame:
        decoded = decode_frame(frame)
        number = f" {type(decoded.message).__name__} {decoded.number}"
    queue = getattr(value, "queue", None)
    place = f" at {queue.sender_id[0]}" if queue is not None else f" {getattr(value, 'effect', '')}"
    return f"{name}{number}{place}"
