"""Two agents who meet through a short link, chat over two servers, and move a queue while messages flow.

    python -m examples.agents

It starts two service processes, oak and elm.  Alice makes a one-time link to a queue on oak; Bob opens it and has his
own queue on elm.  Both write to each other; half-way Alice moves her queue from oak to elm.  Each line on the screen is
a phase or a message as it happens.  With `--agent` one agent runs as a process of its own, which may be killed.

An agent is the contract of three machines in one SQLite file: a rotation `Connection`, a `Dequeuer` for each queue
it owns, and a link.  What agents say is sealed between them under a key for each direction, from the link's
key agreement; an application would run its own ratchet there.
"""
