"""Write tests/vectors/links.json with the library and entropy that is the same in every run.

    python -m tests.links.generate_link_vectors

The file is checked by `verify_link_vectors.py`, which shares no code with the library.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from qsratchet.links import LinkKind, LinkMode, Opening, Priority, ServerAddress, create_link, format_link
from tests.links.shelf import stream

PATH = Path(__file__).parents[1] / "vectors" / "links.json"
SITE = "links.example.com"
SERVERS = {
    LinkKind.ONE_TIME: (("queue.example.org", "2001:db8::1"), 5223),
    LinkKind.CONTACT: (("queue.example.org",), 443),
}


def case(kind: LinkKind, mode: LinkMode) -> dict[str, Any]:
    name = f"{mode.name.lower()} {kind.name.lower().replace('_', '-')}"
    hosts, port = SERVERS[kind]
    entropy = stream(name)
    server = ServerAddress(hosts=hosts, port=port, fingerprint=stream(f"{name} server")(32))
    contents = {
        Priority.RATCHET_KEYS: stream(f"{name} ratchet keys")(64),
        Priority.PQ_KEYS: stream(f"{name} PQ keys")(1184),
        Priority.PROFILE: b'{"name":"Alice"}',
    }
    owner, creation = create_link(server=server, kind=kind, mode=mode, contents=contents, entropy=entropy)
    updated = b'{"name":"Alice B."}'
    owner, update = owner.replace({Priority.PROFILE: updated}, entropy=entropy)
    opening = Opening.start(owner.link, entropy=entropy)
    opened = opening.open({**creation.blobs, **update.blobs})
    keys = owner.link.keys()
    return {
        "name": name,
        "kind": kind.value,
        "mode": mode.value,
        "hosts": list(hosts),
        "port": port,
        "fingerprint": server.fingerprint.hex(),
        "recipient_id": owner.recipient_id.hex(),
        "server_signing_seed": owner.server_signing_key.seed.hex(),
        "server_signing_key": creation.signing_key.hex(),
        "server_dh_seed": owner.server_dh_key.seed.hex(),
        "server_dh_key": creation.dh_key.hex(),
        "link_dh_seed": owner.link_dh_key.seed.hex(),
        "k": opened.k.hex(),
        "owner_signing_seed": None if owner.signing_key is None else owner.signing_key.seed.hex(),
        "owner_signing_key": None if opened.owner_key is None else opened.owner_key.hex(),
        "link_key": owner.link.key.hex(),
        "sender_id": creation.sender_id.hex(),
        "blob_keys": [key.hex() for key in keys.blob_keys],
        "blobs": [
            {"priority": int(priority), "version": version, "content": content.hex(), "sealed": sealed.hex()}
            for priority, version, content, sealed in (
                *((priority, 1, contents[priority], creation.blobs[priority]) for priority in Priority),
                (Priority.PROFILE, 2, updated, update.blobs[Priority.PROFILE]),
            )
        ],
        "text": format_link(owner.link),
        "site": SITE,
        "https_text": format_link(owner.link, site=SITE),
        "sender_seed": None if opening.sender_key is None else opening.sender_key.seed.hex(),
        "sender_key": None if opening.sender_key is None else opening.sender_key.public().hex(),
        "owner_document": owner.dump().hex(),
        "opening_document": opening.dump().hex(),
        "versions_document": opened.seen.dump().hex(),
    }


def generate() -> str:
    cases = [case(kind, mode) for kind in LinkKind for mode in LinkMode]
    return json.dumps({"format": 1, "cases": cases}, indent=1) + "\n"


if __name__ == "__main__":
    PATH.write_text(generate(), encoding="utf-8")
