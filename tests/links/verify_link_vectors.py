"""Check tests/vectors/links.json from the protocol document alone: nothing here comes from the library.

    python tests/links/verify_link_vectors.py tests/vectors/links.json

It uses the standard library and four bare primitives: ChaCha20-Poly1305, Ed25519, X25519 and, from the standard
library, HMAC-SHA256.  Everything is worked out from the seeds and contents, and compared with what the file says.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

DIRECT, BOUND = 1, 2
ONE_TIME, CONTACT = 1, 2
SIZES = {ONE_TIME: (1024, 2048, 4096), CONTACT: (2048, 3072, 10240)}


class Mismatch(Exception):
    """The file says something else than the protocol document."""


def check(what: str, expected: object, found: object) -> None:
    if expected != found:
        raise Mismatch(f"{what}: expected {expected!r}, the file says {found!r}")


def prefixed(data: bytes) -> bytes:
    return struct.pack(">H", len(data)) + data


def expand(secret: bytes, label: bytes, context: bytes, length: int) -> bytes:
    full = b"qsratchet-v1 " + label
    info = struct.pack(">HB", length, len(full)) + full + prefixed(context)
    return hmac.new(secret, info + b"\x01", hashlib.sha256).digest()[:length]


def document(marker: bytes, body: bytes) -> bytes:
    head = marker + b"\x01" + body
    return head + struct.pack(">I", zlib.crc32(head))


def ed25519(seed: bytes) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(seed)


def verify(case: dict[str, Any]) -> None:
    """Raise `Mismatch` if anything in the case is not as the document says."""
    raw = {
        name: bytes.fromhex(value) for name, value in case.items() if name.endswith(("_id", "_seed", "print")) and value
    }
    mode, kind = case["mode"], case["kind"]
    context = bytes([1, mode, kind]) + raw["fingerprint"]

    # Key pairs.
    k = X25519PrivateKey.from_private_bytes(raw["link_dh_seed"]).public_key().public_bytes_raw()
    server_dh = X25519PrivateKey.from_private_bytes(raw["server_dh_seed"]).public_key().public_bytes_raw()
    server_signing = ed25519(raw["server_signing_seed"]).public_key().public_bytes_raw()
    check("k", k.hex(), case["k"])
    check("server_dh_key", server_dh.hex(), case["server_dh_key"])
    check("server_signing_key", server_signing.hex(), case["server_signing_key"])

    # The link's key.
    fixed_data = b""
    link_key = k
    check("owner_signing_seed", mode == BOUND, case["owner_signing_seed"] is not None)
    if mode == BOUND:
        owner_key = ed25519(raw["owner_signing_seed"]).public_key().public_bytes_raw()
        check("owner_signing_key", owner_key.hex(), case["owner_signing_key"])
        fixed_data = context + k + owner_key
        check("size of the fixed data", 99, len(fixed_data))
        link_key = hashlib.sha256(prefixed(b"qsratchet-v1 link fixed data") + fixed_data).digest()
    else:
        check("owner_signing_key", None, case["owner_signing_key"])
    check("link_key", link_key.hex(), case["link_key"])

    # Derivations.
    secret = hmac.new(b"qsratchet-v1 link", link_key, hashlib.sha256).digest()
    sender_id = expand(secret, b"link sender id", context, 24)
    blob_keys = [expand(secret, b"link blob " + digit, context, 32) for digit in (b"0", b"1", b"2")]
    check("sender_id", sender_id.hex(), case["sender_id"])
    check("blob_keys", [key.hex() for key in blob_keys], case["blob_keys"])

    # Blobs.
    newest: dict[int, tuple[int, bytes]] = {}
    for blob in case["blobs"]:
        priority, version, content = blob["priority"], blob["version"], bytes.fromhex(blob["content"])
        payload = struct.pack(">Q", version)
        if mode == BOUND:
            signed = prefixed(b"qsratchet-v1 link blob signature") + context + bytes([priority]) + link_key
            signature = ed25519(raw["owner_signing_seed"]).sign(signed + struct.pack(">Q", version) + content)
            payload += (fixed_data if priority == 0 else b"") + signature
        payload += content
        size = SIZES[kind][priority]
        padded = prefixed(payload) + bytes(size - 12 - 16 - 2 - len(payload))
        aad = bytes([1, mode, kind, priority]) + sender_id
        sealed = bytes.fromhex(blob["sealed"])
        nonce = sealed[:12]
        expected = nonce + ChaCha20Poly1305(blob_keys[priority]).encrypt(nonce, padded, aad)
        check(f"sealed blob {priority} version {version}", expected.hex(), blob["sealed"])
        check(f"size of blob {priority}", size, len(sealed))
        newest[priority] = max(newest.get(priority, (0, b"")), (version, hashlib.sha256(content).digest()))

    # Text.
    def b64(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).decode().rstrip("=")

    letters = {ONE_TIME: "i", CONTACT: "c"}[kind] + {DIRECT: "d", BOUND: "b"}[mode]
    fields = f"1{letters}/{b64(link_key)}/{b64(raw['fingerprint'])}/{case['port']}/{','.join(case['hosts'])}"
    for name, prefix in (("text", "qsr:"), ("https_text", f"https://{case['site']}/qsr#")):
        text = prefix + fields
        check(name, f"{text}/{zlib.crc32(text.encode()):08x}", case[name])

    # Stored documents.
    hosts = b"".join(prefixed(host.encode()) for host in case["hosts"])
    server = raw["fingerprint"] + struct.pack(">HB", case["port"], len(case["hosts"])) + hosts
    owner = bytes([mode, kind]) + server + raw["recipient_id"] + raw["server_signing_seed"] + raw["server_dh_seed"]
    owner += raw["link_dh_seed"] + raw.get("owner_signing_seed", b"")
    owner += b"".join(struct.pack(">Q", newest[priority][0]) for priority in (0, 1, 2))
    check("owner_document", document(b"QSRL", owner).hex(), case["owner_document"])
    opening = bytes([mode, kind]) + link_key + server + raw.get("sender_seed", b"")
    check("opening_document", document(b"QSRJ", opening).hex(), case["opening_document"])
    check("sender_seed", kind == ONE_TIME, case["sender_seed"] is not None)
    sender = ed25519(raw["sender_seed"]).public_key().public_bytes_raw().hex() if kind == ONE_TIME else None
    check("sender_key", sender, case["sender_key"])
    versions = sender_id + b"".join(struct.pack(">Q", newest[p][0]) + newest[p][1] for p in (0, 1, 2))
    check("versions_document", document(b"QSRV", versions).hex(), case["versions_document"])


def main(path: str) -> int:
    vectors = json.loads(Path(path).read_text(encoding="utf-8"))
    check("format", 1, vectors["format"])
    places = {(case["kind"], case["mode"]) for case in vectors["cases"]}
    check("kinds and modes", {(kind, mode) for kind in (ONE_TIME, CONTACT) for mode in (DIRECT, BOUND)}, places)
    for case in vectors["cases"]:
        verify(case)
        print(f"{case['name']}: right")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
