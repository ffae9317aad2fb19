"""The queue ratchet: frames, key schedule, Enqueuer, Dequeuer, grants."""
