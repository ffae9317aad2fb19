"""Primitives: the only package that touches them.  It knows keys and bytes, nothing of queues or links."""
