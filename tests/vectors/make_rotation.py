"""Write the frozen snapshots and the vectors of the rotation: `python -m tests.vectors.make_rotation`.

Run it only for a new format version.  The tests compare with the files and never write them.
"""

from __future__ import annotations

import json
from pathlib import Path

from qsratchet.crypto.dh import DhKey
from qsratchet.rotation import QueueAddress
from qsratchet.rotation.keys import derive_for_receiver, sign_hello
from qsratchet.rotation.messages import (
    Application,
    Message,
    QHello,
    QKeys,
    QNew,
    QReady,
    QSwitch,
    SenderKeys,
    encode_frame,
)
from tests.rotation.test_rotation_snapshot import STAGES

HERE = Path(__file__).parent


def main() -> None:
    snapshots = {}
    for name, stage in STAGES.items():
        connection = stage()
        snapshots[name] = {
            "snapshot": connection.dump().hex(),
            "phases": [status.phase.name for status in connection.status()],
            "effects": [str(getattr(effect, "id", "")) for effect in connection.resume()],
        }
    (HERE / "rotation_snapshots_v1.json").write_text(json.dumps(snapshots, indent=1) + "\n")

    new = QueueAddress(server="smp.example", sender_id=bytes(range(24)))
    old = QueueAddress(server="old.example", sender_id=bytes(range(24, 48)))
    alice, bob = DhKey(b"\x11" * 32), DhKey(b"\x22" * 32)
    keys = SenderKeys(server_key=b"\x33" * 32, dh_key=bob.public())
    derived = derive_for_receiver(alice, new, keys)
    hello = {
        "plain": sign_hello(derived.hello, QHello(queue=new)),
        "with keys": sign_hello(derived.hello, QHello(queue=new, keys=keys)),
        "with last": sign_hello(derived.hello, QHello(queue=new, last=41)),
    }
    messages: list[tuple[str, int, Message]] = [
        ("application", 1, Application(body=b"hello")),
        ("empty application", 2**64 - 1, Application(body=b"")),
        ("QNEW", 2, QNew(queue=new, dh_key=alice.public(), replaces=old)),
        ("QNEW fast", 3, QNew(queue=new, dh_key=alice.public(), replaces=old, fast=True)),
        ("QKEYS", 4, QKeys(queue=new, keys=keys)),
        ("QREADY", 5, QReady(queue=new)),
        ("QREADY or the seed's QSWITCH, by ID", 6, QReady(queue=new.sender_id)),
        ("QSWITCH", 7, QSwitch(queue=new.sender_id)),
        ("QSWITCH by address", 8, QSwitch(queue=new)),
        *((f"QHELLO {name}", 0, message) for name, message in hello.items()),
    ]
    vectors = {
        "inputs": {
            "new server": new.server,
            "new sender id": new.sender_id.hex(),
            "old server": old.server,
            "old sender id": old.sender_id.hex(),
            "receiver dh seed": alice.seed.hex(),
            "sender dh seed": bob.seed.hex(),
            "sender server key": keys.server_key.hex(),
        },
        "queue key": derived.queue.hex(),
        "hello key": derived.hello.hex(),
        "frames": {name: encode_frame(number, message).hex() for name, number, message in messages},
    }
    (HERE / "rotation_v1.json").write_text(json.dumps(vectors, indent=1) + "\n")


if __name__ == "__main__":
    main()
