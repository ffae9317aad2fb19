"""A durable queuing service in small: one SQLite file, a length-framed protocol over TCP, the same over HTTP.

    python -m examples.queuing_service --database service.db --port 7000

| file | what it knows |
|---|---|
| `protocol` | requests, answers and faults as bytes; signatures; nothing of storage |
| `database` | the SQLite file: its tables, and how it is opened |
| `admission` | who may ask for what |
| `sealing` | the cryptography of a batch of requests, before the lock is taken |
| `storage` | each request in one transaction, over the generation that was loaded; nothing of sockets |
| `retention` | what expires and what is evicted: the records machine, carried out |
| `service` | one request in, one answer out: the limits, the clock, the writer's thread |
| `server`, `web` | the same service on TCP and behind HTTP |
| `client`, `send` | the other end, for owners and senders; a sender to run |
| `export` | the file as Parquet, for an audit |

It listens on loopback and has no TLS: a creation request carries a secret, so on a network put TLS in front of it.
"""
