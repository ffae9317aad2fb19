"""Documents, blobs and links that format version 1 once wrote: every later release reads them.

tests/vectors/links_frozen_v1.json was written once with random keys and is never written again.  If a test
here fails, the change breaks what people have stored and shared: give it a new format version instead.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from qsratchet.links import Opening, OwnerLink, Priority, SeenVersions, format_link, parse_link

PATH = Path(__file__).parents[1] / "vectors" / "links_frozen_v1.json"
CASES: list[dict[str, Any]] = json.loads(PATH.read_text(encoding="utf-8"))["cases"]
DIGEST = "fae6905d0a1074a8167e005d2d0fed1ddb4a03ce4158bd684a1f0f277bc2da99"


def test_the_frozen_file_was_not_touched() -> None:
    assert hashlib.sha256(PATH.read_bytes()).hexdigest() == DIGEST
    assert [case["name"] for case in CASES] == ["direct one-time", "bound one-time", "direct contact", "bound contact"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_what_format_1_wrote_is_read_and_written_the_same(case: dict[str, Any]) -> None:
    owner = OwnerLink.load(bytes.fromhex(case["owner"]))
    opening = Opening.load(bytes.fromhex(case["opening"]))
    seen = SeenVersions.load(bytes.fromhex(case["versions"]))
    assert [state.dump().hex() for state in (owner, opening, seen)] == [
        case["owner"],
        case["opening"],
        case["versions"],
    ]
    assert owner.versions == (1, 1, 3)
    assert owner.link == opening.link == parse_link(case["text"]) == parse_link(case["https_text"])
    assert format_link(owner.link) == case["text"]
    assert format_link(owner.link, site="192.0.2.9") == case["https_text"]
    assert opening.request.sender_id.hex() == case["sender_id"]
    blobs = {priority: bytes.fromhex(case["blobs"][priority]) for priority in Priority}
    opened = opening.open(blobs, seen=seen)
    assert [opened.contents[priority].decode() for priority in Priority] == case["contents"]
    assert opened.k.hex() == case["k"] == owner.link_dh_key.public().hex()
    assert opened.seen == seen


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_what_format_1_wrote_can_be_updated(case: dict[str, Any]) -> None:
    owner = OwnerLink.load(bytes.fromhex(case["owner"]))
    _, update = owner.replace({Priority.PROFILE: b"newer"})
    blobs = {priority: bytes.fromhex(case["blobs"][priority]) for priority in Priority}
    seen = SeenVersions.load(bytes.fromhex(case["versions"]))
    opened = Opening.load(bytes.fromhex(case["opening"])).open({**blobs, **update.blobs}, seen=seen)
    assert opened.contents[Priority.PROFILE] == b"newer"
