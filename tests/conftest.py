"""Settings of the whole test run.

`pytest --hypothesis-profile long` runs every property for a long time; docs/testing.md has the last result.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]

# The short run gives the same verdict each time, so that a change is judged by itself; the long one searches anew.
settings.register_profile("short", max_examples=100, deadline=None, derandomize=True, suppress_health_check=_SLOW)
settings.register_profile("long", max_examples=20_000, deadline=None, suppress_health_check=_SLOW)
settings.load_profile("short")
