"""qsratchet: encrypted queues with forward secrecy and post-compromise security, as sans-IO state machines."""
