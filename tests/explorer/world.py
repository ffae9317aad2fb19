"""A world for two shipped connections: three or more servers, requests and replies in flight, and faults.

A world is a tuple of small integers and tuples, so it can be fingerprinted; the machines, effects and events
it speaks of are kept in tables by number.  `Model.moves` gives every move that is possible in a world, and
raises `Violation` when a move breaks an invariant.  The machines are the shipped ones; only the servers and
the network are modelled.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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
    QueueCreated,
    QueueEmpty,
    Received,
    ReceiveQueue,
    Receiving,
    Replay,
    Secured,
    SecureQueue,
    Send,
    SendQueue,
    StartRotation,
    Submit,
    Subscribe,
    Suspended,
    SuspendQueue,
    Tick,
)

from .invariants import Invariants
from .shape import (
    ABORTS,
    ALICE,
    BOB,
    DEAD,
    DOWN,
    FAULTS,
    KEY,
    MACHINES,
    MESSAGES,
    NAMES,
    NEXT,
    OUTSTANDING,
    OWNER,
    PUSHED,
    QUEUES,
    REPLIES,
    SEEN,
    SERVER,
    SERVER_KEYS,
    SERVERS,
    STARTS,
    SUBMITS,
    SUBSCRIBED,
    SUSPENDED,
    THERE,
    UP,
    Scenario,
    Violation,
    World,
    address,
    entropy_of,
    short,
    with_field,
    with_item,
    without,
)


class Model(Invariants):
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
            found = self._labels[number] = short(self.values[number])
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
            poorer = with_field(world, FAULTS, world[FAULTS] - 1)
            yield from self._fault_moves(poorer)
            if self.scenario.early_deadlines:
                for label, after in self._ticks(poorer):
                    yield f"early {label}", after

    def _free_moves(self, world: World) -> Iterator[tuple[str, World]]:
        for agent in (ALICE, BOB):
            who = NAMES[agent]
            for effect in world[OUTSTANDING][agent]:
                after = self._run(world, agent, effect, reply=True)
                if after is not None:
                    yield f"{who} runs {self.label(effect)}", after
            previous = None
            for event in world[REPLIES][agent]:
                if event != previous:
                    after = with_item(world, REPLIES, agent, without(world[REPLIES][agent], event))
                    yield f"{who} gets {self.label(event)}", self._step(after, agent, self.values[event])
                previous = event
            if world[SUBMITS][agent]:
                index = self.scenario.submits[agent] - world[SUBMITS][agent]
                after = with_item(world, SUBMITS, agent, world[SUBMITS][agent] - 1)
                peer = after[SEEN][1 - agent]
                number = self.machines[world[MACHINES][agent]]._stream.next_number
                after = with_item(after, SEEN, 1 - agent, (peer[0], (*peer[1], number), *peer[2:]))
                yield f"{who} submits {index}", self._step(after, agent, Submit(body=bytes([index])))
            if world[STARTS][agent] and self._receiving(world, agent).state is Receiving.IDLE:
                after = with_item(world, STARTS, agent, world[STARTS][agent] - 1)
                yield f"{who} starts", self._step(after, agent, StartRotation(server="new"))
        for index, queue in enumerate(world[QUEUES]):
            if queue[MESSAGES] and queue[SUBSCRIBED] and not queue[PUSHED] and world[SERVERS][queue[SERVER]] == UP:
                yield f"queue {index} pushes", self._push(world, index)
        for server, state in enumerate(world[SERVERS]):
            if state == DOWN:
                yield f"server {server} is back", with_item(world, SERVERS, server, UP)

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
            for effect in world[OUTSTANDING][agent]:
                value = self.values[effect]
                if s.lost_reply:
                    after = self._run(world, agent, effect, reply=False)
                    if after is not None:
                        yield f"{who} runs {self.label(effect)}, no reply", after
                    if isinstance(value, Acknowledge):
                        lost = with_item(world, OUTSTANDING, agent, without(world[OUTSTANDING][agent], effect))
                        yield f"{who} loses {self.label(effect)}", self._todo(lost, agent, Subscribe(queue=value.queue))
                if s.repeat:
                    after = self._run(world, agent, effect, reply=True)
                    if after is None:
                        continue
                    again = self._run(self._todo(after, agent, value), agent, effect, reply=True)
                    if again is not None:
                        yield f"{who} runs twice {self.label(effect)}", again
            if s.repeat:
                for event in world[REPLIES][agent]:
                    after = with_item(world, REPLIES, agent, without(world[REPLIES][agent], event))
                    value = self.values[event]
                    if isinstance(value, QueueCreated):
                        # An answer that nobody waits for any more is reported each time it comes.
                        continue
                    yield (
                        f"{who} gets twice {self.label(event)}",
                        self._step(self._step(after, agent, value), agent, value),
                    )
            if world[ABORTS]:
                yield from self._user(with_field(world, ABORTS, world[ABORTS] - 1), agent, AbortRotation())
            if s.forces:
                yield from self._user(world, agent, ForceRotation())
        for server, state in enumerate(world[SERVERS]):
            if s.outage and state == UP:
                yield f"server {server} goes down", with_item(world, SERVERS, server, DOWN)
            if server in s.death and state == UP:
                yield f"server {server} dies", with_item(world, SERVERS, server, DEAD)
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

    def _step(self, world: World, agent: int, event: Event) -> World:
        before = world[MACHINES][agent]
        key = (before, event)
        known = self._steps.get(key)
        if known is None:
            connection = self.copy(self.machines[before])
            effects = connection.step(event, 0)
            known = self._steps[key] = (self.adopt(connection), effects)
        after, effects = known
        world = with_item(world, MACHINES, agent, after)
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
                    world = with_item(world, SEEN, agent, self._see(world[SEEN][agent], effect))
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

    def _todo(self, world: World, agent: int, effect: Effect) -> World:
        number = self.number(effect)
        todo = world[OUTSTANDING][agent]
        return world if number in todo else with_item(world, OUTSTANDING, agent, tuple(sorted((*todo, number))))

    # --- servers ---------------------------------------------------------------------------------

    def _queue(self, world: World, index: int, changes: dict[int, Any]) -> World:
        queue = list(world[QUEUES][index])
        for field, value in changes.items():
            queue[field] = value
        return with_item(world, QUEUES, index, tuple(queue))

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
        return with_item(world, REPLIES, agent, replies)

    def _run(self, world: World, agent: int, number: int, *, reply: bool) -> World | None:
        """Carry an effect out on its server; None when the server cannot be reached."""
        effect = self.values[number]
        if isinstance(effect, CreateQueue):
            if len(world[QUEUES]) >= 60:
                return None
            done = with_item(world, OUTSTANDING, agent, without(world[OUTSTANDING][agent], number))
            index = len(world[QUEUES])
            done = with_field(done, QUEUES, (*done[QUEUES], (agent, index, True, 0, False, (), 0, False, False)))
            done = with_field(done, SERVERS, (*done[SERVERS], UP))
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
            done = with_item(world, OUTSTANDING, agent, without(world[OUTSTANDING][agent], number))
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
        return SERVER_KEYS[agent]

    def _crash(self, world: World, agent: int) -> World:
        """What was stored is all that is left: the held message, requests and replies are gone."""
        before = world[MACHINES][agent]
        known = self._restarts.get(before)
        if known is None:
            machine = self.machines[before]
            connection = Connection.load(machine.dump(), patience=machine._patience, entropy=machine._entropy)
            known = self._restarts[before] = (self.adopt(connection), connection.resume())
        after, effects = known
        world = with_item(world, MACHINES, agent, after)
        world = with_item(with_item(world, OUTSTANDING, agent, ()), REPLIES, agent, ())
        for index, queue in enumerate(world[QUEUES]):
            if queue[OWNER] == agent:
                world = self._queue(world, index, {SUBSCRIBED: False, PUSHED: False})
        for effect in effects:
            world = self._todo(world, agent, effect)
        return world
