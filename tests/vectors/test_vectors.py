"""Both implementations against every case of every file, and the files against their generator."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.vectors.generate import as_text, main, make, path_of, recording
from tests.vectors.implementations import (
    ALL_SUITES,
    IMPLEMENTATIONS,
    Implementation,
    generation_of,
    qctx_of,
    without_generation,
)
from tests.vectors.reference import (
    INIT,
    SUITES,
    Injection,
    Request,
    aead,
    context,
    digest,
    expand,
    extract,
    hpke_open,
    message_key,
    next_key,
    offer_document,
    public_key_of,
    rotation_key,
)

unhex = bytes.fromhex


@cache
def file(suite: int) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path_of(suite).read_text())
    return content


def cases(section: str) -> list[Any]:
    """One test for each case of this section, in each suite and implementation."""
    return [
        pytest.param(
            implementation,
            suite,
            row,
            id=f"{implementation.name}-{suite}-{row['name']}",
        )
        for implementation in IMPLEMENTATIONS
        for suite in ALL_SUITES
        for row in file(suite)[section]
    ]


# --- the files themselves ---


@pytest.mark.parametrize("suite", ALL_SUITES)
def test_a_file_is_made_again_byte_for_byte_from_its_recording(suite: int) -> None:
    assert as_text(make(suite, recording(file(suite)))) == path_of(suite).read_text()


def test_the_generator_does_not_overwrite_unless_told_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["1", "--directory", str(tmp_path)]) == 0
    written = path_of(1, tmp_path)
    assert written.read_text() == path_of(1).read_text()
    written.write_text("frozen")
    with pytest.raises(SystemExit):
        main(["1", "--directory", str(tmp_path)])
    assert "--overwrite" in capsys.readouterr().err
    assert written.read_text() == "frozen"
    assert main(["1", "--directory", str(tmp_path), "--overwrite"]) == 0
    assert written.read_text() == path_of(1).read_text()


def test_the_reference_and_the_generator_import_nothing_of_the_library() -> None:
    script = "import sys, tests.vectors.generate; sys.exit('qsratchet' in {name.split('.')[0] for name in sys.modules})"
    assert subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parents[2], check=False).returncode == 0


@pytest.mark.parametrize("suite", ALL_SUITES)
def test_the_context_of_a_queue_follows_from_its_request(suite: int) -> None:
    row = file(suite)["creation"]
    request = Request.decode(unhex(row["request"]))
    assert request.public_key == public_key_of(SUITES[suite][0], unhex(row["key_seed"])) == unhex(row["public_key"])
    assert request.join_secret == unhex(row["join_secret"])
    assert list(request.suites) == row["suites"]
    qctx = context(
        suite, unhex(row["service_id"]), unhex(row["queue_id"]), row["suites"], digest(suite, request.public_key)
    )
    assert qctx == unhex(row["qctx"])


@pytest.mark.parametrize("suite", ALL_SUITES)
def test_every_inner_value_of_every_frame_follows_from_the_one_before(suite: int) -> None:
    content = file(suite)
    qctx, seeds = unhex(content["creation"]["qctx"]), [content["creation"], *content["offers"]]
    ck, first = b"", 1
    for row in content["frames"]:
        frame, header = unhex(row["frame"]), unhex(row["frame"])[:16]
        assert unhex(row["ck"]) == ck
        if header[1] != INIT:
            assert unhex(row["message_key"]) == message_key(suite, ck)
            assert unhex(row["nonce"]) == frame[16:28]
            cipher = aead(suite, unhex(row["message_key"]))
            body = cipher.decrypt(frame[16:28], frame[28:], qctx + header + unhex(row.get("aad", "")))
            assert body == unhex(row["body"])
        if "ct" not in row:
            assert body[4:].startswith(unhex(row["message"]))
            ck = next_key(suite, ck)
        else:
            ct, injection = unhex(row["ct"]), Injection(suite, qctx, header, row["key_id"], row["ended"])
            assert injection.info() == unhex(row["info"])
            seed = unhex(seeds[row["key_id"]]["key_seed"])
            assert hpke_open(SUITES[suite][0], seed, injection.info(), ct) == unhex(row["r"])
            if header[1] == INIT:
                assert row["salt"] == content["creation"]["join_secret"]
            else:
                assert unhex(row["salt"]) == rotation_key(suite, ck, qctx, row["epoch"], row["seq"])
                assert row["ended"] == row["seq"] - first + 1
            ck, first = injection.chain_key(unhex(row["salt"]), unhex(row["r"]), ct), row["seq"] + 1
            assert unhex(row["confirmation"]) == injection.confirmation(ck, ct)
        assert unhex(row["next_ck"]) == ck


@pytest.mark.parametrize("suite", ALL_SUITES)
def test_offers_carry_the_public_key_of_their_seed(suite: int) -> None:
    qctx = unhex(file(suite)["creation"]["qctx"])
    for row in file(suite)["offers"]:
        public_key = public_key_of(SUITES[suite][0], unhex(row["key_seed"]))
        assert public_key == unhex(row["public_key"])
        assert unhex(row["offer"]) == offer_document(suite, qctx, row["key_id"], public_key)


@pytest.mark.parametrize("suite", ALL_SUITES)
def test_the_kdf_gives_the_recorded_values(suite: int) -> None:
    first, second, third, *steps = file(suite)["kdf"]
    assert digest(suite, unhex(first["of"])) == unhex(first["H"])
    assert extract(suite, unhex(second["salt"]), unhex(second["ikm"])) == unhex(second["Extract"])
    label = third["label"].encode()
    assert expand(suite, unhex(third["secret"]), label, unhex(third["context"]), third["L"]) == unhex(third["X"])
    for row in steps:
        assert message_key(suite, unhex(row["ck"])) == unhex(row["message_key"])
        assert next_key(suite, unhex(row["ck"])) == unhex(row["next_ck"])


# --- the two implementations ---


@pytest.mark.parametrize(("implementation", "suite", "row"), cases("reads"))
def test_a_reader_gives_the_recorded_message_or_verdict(
    implementation: Implementation, suite: int, row: dict[str, Any]
) -> None:
    states = file(suite)["owner_states"]
    before = unhex(states[row["state"]])
    read = implementation.read(before, row["forward_limit"], unhex(row["frame"]), unhex(row["aad"]))
    if "verdict" in row:
        assert (read.verdict, read.state) == (row["verdict"], before)
    else:
        assert read.verdict is None
        assert read.message == (None if row["message"] is None else unhex(row["message"]))
        assert list(read.missing) == row["missing"]
        assert without_generation(read.state) == without_generation(unhex(states[row["after"]]))
        assert generation_of(read.state) > generation_of(before)


@pytest.mark.parametrize(("implementation", "suite", "row"), cases("heads"))
def test_a_head_is_checked_as_recorded(implementation: Implementation, suite: int, row: dict[str, Any]) -> None:
    state = unhex(file(suite)["owner_states"][row["state"]])
    head, nonce = unhex(row["head"]), unhex(row["nonce"])
    expected = row["verdict"] if "verdict" in row else row["missing"]
    assert implementation.check_head(state, row["forward_limit"], head, nonce) == expected
    if "service_state" in row:
        assert implementation.head(unhex(file(suite)["service_states"][row["service_state"]]), nonce) == head


@pytest.mark.parametrize(("implementation", "suite", "row"), cases("offer_cases"))
def test_a_service_answers_an_offer_as_recorded(
    implementation: Implementation, suite: int, row: dict[str, Any]
) -> None:
    state = unhex(file(suite)["service_states"][row["service_state"]])
    answer = implementation.take_offer(state, unhex(row["offer"]))
    expected = row["expected"]
    if isinstance(answer, str):
        assert answer == expected
    else:
        assert len(answer[1]) == {"update": 1, "repetition": 0}[expected]


@pytest.mark.parametrize(("implementation", "suite", "row"), cases("requests"))
def test_a_service_chooses_the_suite_and_the_context_as_recorded(
    implementation: Implementation, suite: int, row: dict[str, Any]
) -> None:
    made = implementation.create(unhex(row["request"]), ALL_SUITES)
    if isinstance(made, str):
        assert made == row["expected"]
    else:
        state, init = made
        assert int.from_bytes(init[2:4], "big") == row["expected"]
        assert qctx_of(state) == unhex(row["qctx"])


@pytest.mark.parametrize(("implementation", "suite", "row"), cases("grants"))
def test_a_grant_opens_what_is_recorded_and_nothing_else(
    implementation: Implementation, suite: int, row: dict[str, Any]
) -> None:
    message, verdict = implementation.open_granted(unhex(row["grant"]), unhex(row["frame"]), unhex(row["aad"]))
    assert verdict == row.get("verdict")
    assert message == (None if row.get("message") is None else unhex(row["message"]))


@pytest.mark.parametrize("suite", ALL_SUITES)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS, ids=lambda it: it.name)
def test_all_grants_follow_from_the_owners_keys_and_the_control_frames(
    implementation: Implementation, suite: int
) -> None:
    row = file(suite)["owner_keys"]
    grants = implementation.walk(unhex(row["document"]), [unhex(frame) for frame in row["control_frames"]])
    assert [grant.hex() for grant in grants] == row["grants"]
    states = file(suite)["owner_states"]
    starts = [f"next {frame['seq'] + 1}" for frame in file(suite)["frames"] if frame["type"] != "DATA"]
    assert [implementation.grant(unhex(states[name])).hex() for name in starts] == row["grants"]


@pytest.mark.parametrize("suite", ALL_SUITES)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS, ids=lambda it: it.name)
def test_every_stored_document_comes_back_byte_for_byte(implementation: Implementation, suite: int) -> None:
    content = file(suite)
    documents = [("owner state", text) for text in content["owner_states"].values()]
    documents += [("service state", text) for text in content["service_states"].values()]
    documents += [("grant", text) for text in content["owner_keys"]["grants"]]
    documents += [("keys", content["owner_keys"]["document"])]
    for kind, text in documents:
        again = implementation.again(kind, unhex(text))
        assert again is not None
        assert again.hex() == text


@pytest.mark.parametrize(("implementation", "suite", "row"), cases("malformed_documents"))
def test_a_malformed_document_is_refused(implementation: Implementation, suite: int, row: dict[str, Any]) -> None:
    assert implementation.again(row["kind"], unhex(row["data"])) is None


@pytest.mark.parametrize("suite", ALL_SUITES)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS, ids=lambda it: it.name)
def test_discarding_takes_one_step_and_records_the_number(implementation: Implementation, suite: int) -> None:
    states = file(suite)["owner_states"]
    after = implementation.discard(unhex(states["next 14"]))
    assert without_generation(after) == without_generation(unhex(states["next 15, 14 discarded"]))
