"""Services that several tests share: each test has queues of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .processes import Running, running
from .wires import HttpWire, TcpWire, Wire


@pytest.fixture(scope="session", params=["tcp", "http"])
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The same service over both of its transports."""
    options = ["--update-every", "10", "--queue-length", "30"]
    if request.param == "http":
        pytest.importorskip("uvicorn", reason="the extra `http` is not installed")
        options.append("--http")
    with running(tmp_path_factory.mktemp(request.param) / "service.db", *options) as started:
        yield started
        assert started.process.poll() is None, "the service did not outlive its tests"


@pytest.fixture(params=["tcp", "http"])
def wire(request: pytest.FixtureRequest) -> Wire:
    """Each of the two transports, for a service of the test's own."""
    if request.param == "tcp":
        return TcpWire()
    pytest.importorskip("uvicorn", reason="the extra `http` is not installed")
    return HttpWire()
