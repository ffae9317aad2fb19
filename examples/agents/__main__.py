"""Run both agents and show the phases as they happen, or run one of them as a process."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from examples.owner import start_service, stop_service
from examples.queuing_service.protocol import Refusal
from qsratchet.rotation import Receiving, StartRotation

from .agent import Agent


def demonstrate(directory: Path, messages: int) -> bool:
    """Both agents in this process, two services in theirs; whether everything arrived, in order."""
    started = time.monotonic()
    services = {name: start_service(directory / f"{name}.db", 0, "--name", name) for name in ("oak", "elm")}
    servers = {name: port for name, (_, port) in services.items()}

    def column(name: str) -> Callable[[str], None]:
        indent = 0 if name == "alice" else 52
        return lambda line: print(f"{time.monotonic() - started:6.2f} {'':{indent}}{name:5} {line}", flush=True)

    alice, bob = (Agent(name, directory / f"{name}.db", servers, column(name)) for name in ("alice", "bob"))
    try:
        link = alice.invite("oak")
        print(f"the link: {link}")
        bob.accept(link, "elm")
        until(lambda: alice.connection is not None, alice, bob)
        for number in range(1, messages + 1):
            alice.submit(b"alice %d" % number)
            bob.submit(b"bob %d" % number)
            alice.turn()
            bob.turn()
            if number == messages // 3:
                alice.step(StartRotation(server="elm"))
        until(lambda: finished(alice, bob, messages), alice, bob)
        assert alice.connection is not None
        moved = alice.connection.receive_queue.address.server == "elm"
        expected = [[b"%s %d" % (peer, n) for n in range(1, messages + 1)] for peer in (b"bob", b"alice")]
        whole = [alice.inbox, bob.inbox] == expected
        print(f"moved: {moved}; every message once and in order: {whole}")
        return moved and whole
    finally:
        alice.close()
        bob.close()
        for service, _ in services.values():
            stop_service(service)


def finished(alice: Agent, bob: Agent, messages: int) -> bool:
    assert alice.connection is not None
    idle = alice.connection.status()[0].phase is Receiving.IDLE
    return idle and len(alice.inbox) == len(bob.inbox) == messages


def until(condition: Callable[[], bool], *agents: Agent) -> None:
    end = time.monotonic() + 60
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("the agents did not come to an end")
        for agent in agents:
            agent.turn()


def run(agent: Agent, options: argparse.Namespace) -> None:
    """One agent until SIGTERM: it meets its peer through a file with the link, writes, reads, and moves its queue."""
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    home = options.home
    while agent.connection is None and not stopping.is_set():
        try:
            if options.link.exists():
                if agent.name == "bob":
                    agent.accept(options.link.read_text(), home)
            elif agent.name == "alice":
                whole = options.link.with_suffix(".partial")
                whole.write_text(agent.invite(home))
                whole.rename(options.link)
        except (OSError, Refusal):
            pass
        if not agent.turn():
            stopping.wait(0.02)
    while not stopping.is_set():
        assert agent.connection is not None
        if agent.submitted < options.messages and agent.connection.waiting < 5:
            agent.submit(b"%s %d" % (agent.name.encode(), agent.submitted + 1))
        here = agent.connection.receive_queue.address.server
        idle = agent.connection.status()[0].phase is Receiving.IDLE
        if options.rotate_every and idle and len(agent.inbox) >= options.rotate_every * (len(_moves(agent)) + 1):
            agent.step(StartRotation(server=next(name for name in sorted(options.servers) if name != here)))
        if not agent.turn():
            stopping.wait(0.005)


def _moves(agent: Agent) -> list[str]:
    return [line for line in agent.reports if line.startswith("rotation ended") and "our queue" in line]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=30, help="how many messages each of them writes")
    parser.add_argument("--agent", choices=["alice", "bob"], help="run one agent, until SIGTERM")
    parser.add_argument("--database", type=Path, help="the agent's file")
    parser.add_argument("--link", type=Path, help="the file through which the link goes from Alice to Bob")
    parser.add_argument("--home", default="oak", help="the server of the agent's first queue")
    parser.add_argument("--rotate-every", type=int, default=0, help="move the queue after so many messages")
    parser.add_argument("--server", action="append", default=[], metavar="NAME=PORT")
    options = parser.parse_args()
    if options.agent is None:
        with tempfile.TemporaryDirectory() as directory:
            return 0 if demonstrate(Path(directory), options.messages) else 1
    options.servers = {name: int(port) for name, _, port in (item.partition("=") for item in options.server)}
    agent = Agent(options.agent, options.database, options.servers, lambda line: print(line, flush=True))
    run(agent, options)
    agent.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
