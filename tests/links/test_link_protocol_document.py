"""The protocol document and the code name the same sizes, limits, labels, markers and faults."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from qsratchet.codec import Kind
from qsratchet.links import BLOB_SIZES, BlobFault, LinkFault, LinkKind, Priority, ServerRequest, content_limit
from qsratchet.links.server import MAX_HOSTS
from qsratchet.links.text import MAX_LINK_TEXT

TEXT = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
SECTION = re.split(r"^## ", TEXT[TEXT.index("## 10. Short links") :], flags=re.MULTILINE)[1]


@pytest.mark.parametrize("kind", LinkKind)
def test_the_table_of_sizes_is_that_of_the_code(kind: LinkKind) -> None:
    sizes = [f"{BLOB_SIZES[kind][priority]:,} ({content_limit(kind, priority):,})" for priority in Priority]
    row = " | ".join([kind.name.lower().replace("_", "-"), *sizes, f"{sum(BLOB_SIZES[kind].values()):,}"])
    assert f"| {row} |" in SECTION


def test_limits_and_markers_are_those_of_the_code() -> None:
    assert f"At most {MAX_LINK_TEXT:,} characters" in SECTION
    assert f"At most {MAX_HOSTS} hosts" in SECTION
    for kind in (Kind.LINK_OWNER, Kind.LINK_OPENING, Kind.LINK_VERSIONS):
        assert f"| `{kind.value.decode()}` |" in SECTION


def test_every_fault_and_every_request_is_explained() -> None:
    for fault in (*LinkFault, *BlobFault):
        assert f"`{fault.name}`" in SECTION
    for request in ServerRequest.__args__:
        assert f"| `{request.__name__}` |" in SECTION
