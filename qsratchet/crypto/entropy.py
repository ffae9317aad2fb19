"""Where randomness comes from: an argument, with the operating system's generator as its default.

Vectors and simulations pass their own source; a host never has to.  This module knows nothing of what the
bytes are for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

__all__ = ["Entropy"]

#: Takes a number of bytes and returns that many bytes that nobody can predict: `os.urandom`.
Entropy: TypeAlias = Callable[[int], bytes]
