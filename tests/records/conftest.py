"""No deadline for a generated example: its duration says how busy the machine is, not whether the code is right."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("without deadline", parent=settings(), deadline=None)
settings.load_profile("without deadline")
