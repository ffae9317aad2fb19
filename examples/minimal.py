"""The ratchet in 30 lines, in memory: `python -m examples.minimal`."""

import os

from qsratchet import Dequeuer, Enqueuer, Message


def main() -> None:
    # The owner makes a key and a request; the service makes the queue.  Frame 0 carries the first chain key.
    owner, request = Dequeuer.create(b"service.example", b"queue 1")
    service, init = Enqueuer.create(request.encode(), now=0)
    queue = [init, *service.enqueue(b"hello", now=1), *service.enqueue(b"world", now=2)]

    for frame in queue:
        opened = owner.open(frame.data)
        print(opened.body.decode() if isinstance(opened, Message) else f"({frame.type.name.lower()})")

    # A new key: the service answers with fresh randomness sealed to it, and the owner's old key is gone.
    (update,) = service.accept_offer(owner.offer_key().encode(), now=3)
    owner.open(update.data)

    # Nothing was cut off: the service proves what its next number is.
    nonce = os.urandom(16)
    head = owner.verify_head(service.head(nonce), nonce)
    print(f"key {owner.key_id}, epoch {owner.epoch}, {len(head.missing)} missing")


if __name__ == "__main__":
    main()
