"""Two agents who meet through a short link, chat over two servers, and move a queue while messages flow.

    python -m examples.agents

It starts two service processes, oak and elm.  Alice makes a one-time link to a queue on oak; Bob opens it and has his
own queue on elm.  Both write to each other; half-way Alice moves her queue from oak to elm.  Each line on the screen is
a phase or a message as it happens.  With `--agent` one agent runs as a process of its own, which may be killed.

An agent is the contract of three machines in one SQLite file: a rotation `Connection`, a `Dequeuer` for each queue
it owns, and a link.

What agents say to each other is sealed once more, end to end, under a key for each queue.  The first two come from the
link's key agreement; each rotation brings a fresh key with the new queue, which the library derives
(`Connection.receive_queues`, `send_queues`), and the old key is deleted with the old queue; what the link's agreement
was made of is deleted when the connection begins.  That is all it is: a thief of an agent's file reads what is sealed
to the two present queues, the agent's and its peer's, each back to the rotation that made it (a first queue: back to
the meeting) and on to the next.  An application that wants more runs its own ratchet there.
"""
