"""Send messages to a queue of a running service, as one who knows no more of it than where to send.

    python -m examples.queuing_service.send --service 127.0.0.1:7000 --to ID hello world

`ID` is what the queue's owner says: `examples.owner` prints it after the word `sender`.
"""

from __future__ import annotations

import argparse
import os
import sys

from qsratchet.crypto import SigningKey

from .client import Client, exchange_with
from .protocol import Refusal


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--service", required=True, help="a running service: host:port, or http://host:port")
    parser.add_argument("--name", default="service.example", help="the service's id")
    parser.add_argument("--to", required=True, type=bytes.fromhex, metavar="ID", help="the queue's sender id, in hex")
    parser.add_argument("messages", nargs="+", metavar="MESSAGE")
    options = parser.parse_args()
    # Nobody has secured the queue for one sender, so any key may send.
    client = Client(exchange_with(options.service), options.name.encode(), SigningKey.generate())
    for message in options.messages:
        try:
            seq = client.enqueue(options.to, os.urandom(16), message.encode())
        except (OSError, Refusal) as error:
            sys.exit(f"{message!r} was not confirmed: {error}")
        print(f"frame {seq}: {message}")


if __name__ == "__main__":
    main()
