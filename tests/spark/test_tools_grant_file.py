"""The grant file: what is written is read, by queue, and nobody without the key reads or alters it."""

from __future__ import annotations

import os
import pickle
import random
import stat
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyspark_udfs.file_key import FileKey, KeyService, Passphrase, PassphraseFile, PassphraseVariable
from pyspark_udfs.grant_file import GrantFile, KeyFile, grant_record, merged, narrowed, write_grants, write_keys
from pyspark_udfs.sealed_file import Content, Record, SealedFile, SealedWriter, WrongKey
from qsratchet import SUITES, Grant, MisuseError, OwnerKeys, StateError
from qsratchet.crypto.kem import XWING, PrivateKey
from qsratchet.crypto.passphrase import ScryptCost

CHEAP = ScryptCost(log_n=14)
SERVICE = KeyService(f"{__name__}:service_key")


def service_key(hint: bytes) -> bytes:
    return b"\x07" * 31 + bytes([len(hint)])


def failing_key(hint: bytes) -> bytes:
    raise RuntimeError("the key is hunter2")


def short_key(hint: bytes) -> bytes:
    return b"short"


def grant(queue: bytes, epoch: int, first: int = 1, service: bytes = b"service") -> Grant:
    chain_key = random.Random(repr((service, queue, epoch, first))).randbytes(32)
    return Grant(
        suite=SUITES[2],
        service_id=service,
        queue_id=queue,
        suites=(2,),
        key_hash=bytes(32),
        epoch=epoch,
        first_seq=first,
        chain_key=chain_key,
    )


def grants(queues: int, epochs: int) -> list[Grant]:
    return [grant(queue.to_bytes(4, "big"), epoch) for queue in range(queues) for epoch in range(epochs)]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "audit.grants"
    write_grants(path, grants(40, 3), SERVICE)
    return path


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    counts=st.dictionaries(
        st.tuples(st.binary(min_size=1, max_size=3), st.binary(min_size=1, max_size=3)),
        st.integers(1, 30),
        max_size=30,
    ),
    absent=st.tuples(st.binary(min_size=1, max_size=3), st.binary(min_size=1, max_size=3)),
    block_size=st.sampled_from([1 << 10, 1 << 11, 1 << 16]),
)
def test_every_grant_that_was_written_is_found_under_its_queue_and_no_other(
    tmp_path: Path, counts: dict[tuple[bytes, bytes], int], absent: tuple[bytes, bytes], block_size: int
) -> None:
    path = tmp_path / "file"
    expected = {
        key: [grant(key[1], epoch, service=key[0]) for epoch in range(number)] for key, number in sorted(counts.items())
    }
    with SealedWriter(path, Content.GRANTS, SERVICE, block_size=block_size) as writer:
        for of_queue in expected.values():
            for one in of_queue:
                writer.add(grant_record(one))
    file = GrantFile(str(path), SERVICE)
    order = list(expected)
    random.Random(1).shuffle(order)
    for key in order:
        assert file.grants(*key) == expected[key]
    if absent not in expected:
        assert file.grants(*absent) == []
    assert list(file.queues()) == list(expected)
    assert list(file) == [one for of_queue in expected.values() for one in of_queue]
    assert len(file) == len(writer) == sum(counts.values())


def test_a_look_up_in_a_large_file_opens_a_few_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    with SealedWriter(path, Content.GRANTS, SERVICE, block_size=1 << 10) as writer:
        for one in grants(3_000, 1):
            writer.add(grant_record(one))
    file = SealedFile(path, Content.GRANTS, SERVICE)
    opened: list[int] = []
    read = os.pread

    def counted(fd: int, size: int, at: int) -> bytes:
        opened.append(at)
        return read(fd, size, at)

    monkeypatch.setattr(os, "pread", counted)
    assert len(file.of_queue(b"service", (1_234).to_bytes(4, "big"))) == 1
    blocks = path.stat().st_size // (1 << 10)
    assert blocks > 400
    assert len(opened) <= 14
    opened.clear()
    for queue in range(1_235, 1_335):
        assert len(file.of_queue(b"service", queue.to_bytes(4, "big"))) == 1
    # In order, each block is opened once; some ten more are those that a binary search comes past.
    assert len(opened) <= 100 // 6 + 12


def test_a_wrong_passphrase_is_told_as_such(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_grants(path, grants(2, 2), Passphrase("right"), cost=CHEAP)
    assert len(GrantFile(str(path), Passphrase("right")).check()) == 4
    with pytest.raises(WrongKey, match="does not open with this passphrase"):
        GrantFile(str(path), Passphrase("wrong")).check()


def test_no_altered_byte_goes_unnoticed(written: Path) -> None:
    original = written.read_bytes()
    header = int.from_bytes(original[5:7], "big")
    places = [*range(header), *random.Random(2).sample(range(header, len(original)), 40)]
    for place in places:
        damaged = bytearray(original)
        damaged[place] ^= 0x01
        if place < header - 4:
            # An attacker mends the checksum, which is there for accidents.
            damaged[header - 4 : header] = crc32(damaged[: header - 4]).to_bytes(4, "big")
        written.write_bytes(damaged)
        with pytest.raises((StateError, MisuseError)):
            list(GrantFile(str(written), SERVICE))


def test_blocks_cannot_change_places_or_come_from_another_file(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for path in (one, other):
        with SealedWriter(path, Content.GRANTS, SERVICE, block_size=1 << 10) as writer:
            for each in grants(40, 1):
                writer.add(grant_record(each))
    data, foreign = one.read_bytes(), other.read_bytes()
    start = int.from_bytes(data[5:7], "big")
    size = (1 << 10) + 16
    first, second = data[start : start + size], data[start + size : start + 2 * size]
    for blocks in (second + first, foreign[start : start + size] + second):
        one.write_bytes(data[:start] + blocks + data[start + 2 * size :])
        with pytest.raises(StateError, match="altered or moved"):
            list(GrantFile(str(one), SERVICE))


@pytest.mark.parametrize("keep", [0, 3, 6, 40, -1, -5_000])
def test_a_file_that_was_cut_short_is_refused(written: Path, keep: int) -> None:
    written.write_bytes(written.read_bytes()[:keep])
    with pytest.raises(StateError):
        GrantFile(str(written), SERVICE).check()


def test_bytes_after_the_end_are_refused(written: Path) -> None:
    written.write_bytes(written.read_bytes() + b"\0")
    with pytest.raises(StateError, match="added to"):
        GrantFile(str(written), SERVICE).check()


def test_stored_costs_are_bounded_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_grants(path, grants(1, 1), Passphrase("right"), cost=CHEAP)
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[5:7], "big")
    assert data[9] == 14
    data[9] = 30
    data[size - 4 : size] = crc32(data[: size - 4]).to_bytes(4, "big")
    path.write_bytes(data)
    monkeypatch.setattr("hashlib.scrypt", lambda *_, **__: pytest.fail("scrypt ran"))
    with pytest.raises(StateError, match="outside what is allowed"):
        GrantFile(str(path), Passphrase("right")).check()


def test_a_key_file_is_not_a_grant_file(tmp_path: Path, written: Path) -> None:
    keys = OwnerKeys(b"service", b"queue", (2,), bytes(32), {0: PrivateKey(XWING, bytes(32))})
    path = tmp_path / "owner.keys"
    assert write_keys(path, [keys], SERVICE) == 1
    file = KeyFile(str(path), SERVICE)
    found = file.check().keys(b"service", b"queue")
    assert found is not None
    assert found.encode() == keys.encode()
    assert [one.encode() for one in file] == [keys.encode()]
    assert len(file) == 1
    assert file.keys(b"service", b"other") is None
    with pytest.raises(MisuseError, match="holds owner keys, not grants"):
        GrantFile(str(path), SERVICE).check()
    with pytest.raises(MisuseError, match="holds grants, not owner keys"):
        KeyFile(str(written), SERVICE).check()


def test_keys_of_one_queue_in_several_records_are_joined(tmp_path: Path) -> None:
    early = OwnerKeys(b"service", b"queue", (2,), bytes(32), {0: PrivateKey(XWING, bytes(32))})
    late = OwnerKeys(b"service", b"queue", (2,), None, {1: PrivateKey(XWING, bytes([1] * 32))})
    write_keys(tmp_path / "keys", [early, late], SERVICE)
    found = KeyFile(str(tmp_path / "keys"), SERVICE).keys(b"service", b"queue")
    assert found is not None
    assert found.key_ids == (0, 1)


def test_a_reference_is_pickled_without_what_it_opened(tmp_path: Path) -> None:
    path, secret = tmp_path / "file", tmp_path / "passphrase"
    secret.write_text("correct horse battery\n")
    key = PassphraseFile(str(secret))
    write_grants(path, grants(3, 2), key, cost=CHEAP)
    file = GrantFile(str(path), key).check()
    assert len(file.grants(b"service", bytes(4))) == 2
    pickled = pickle.dumps(file)
    for hidden in [b"correct horse", *(one.chain_key(one.first_seq) for one in grants(3, 2))]:
        assert hidden not in pickled
    assert pickle.loads(pickled).grants(b"service", bytes(4)) == grants(1, 2)
    for never in (Passphrase("correct horse"), SealedFile(path, Content.GRANTS, key)):
        assert "horse" not in repr(never)
        with pytest.raises(TypeError, match="not pickled"):
            pickle.dumps(never)
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(GrantFile(str(path), Passphrase("correct horse battery")))


def test_a_file_shows_neither_grants_nor_ids(tmp_path: Path) -> None:
    path = tmp_path / "file"
    one = grant(b"a queue id that could be seen", 0, service=b"a service id that could be seen")
    write_grants(path, [one], SERVICE)
    data = path.read_bytes()
    assert b"could be seen" not in data
    assert one.chain_key(one.first_seq) not in data
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_record_does_not_print_what_it_holds() -> None:
    assert "secret" not in repr(Record(b"s", b"q", 0, 1, b"secret"))


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(written: Path) -> None:
    before = written.read_bytes()
    with pytest.raises(MisuseError, match="must come sorted"):
        write_grants(written, reversed(grants(40, 3)), SERVICE)
    assert written.read_bytes() == before
    assert [path.name for path in written.parent.iterdir()] == [written.name]


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(MisuseError, match="a block has"):
        SealedWriter(path, Content.GRANTS, SERVICE, block_size=100)
    with pytest.raises(MisuseError, match="a hint has at most"):
        SealedWriter(path, Content.GRANTS, SERVICE, hint=bytes(2_000))
    with (
        pytest.raises(MisuseError, match="raise the block size"),
        SealedWriter(path, Content.GRANTS, SERVICE, block_size=1 << 10) as writer,
    ):
        writer.add(Record(b"s", b"q", 0, 1, bytes(1_100)))
    assert not list(tmp_path.iterdir())


def test_an_empty_file_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert write_grants(path, [], SERVICE) == 0
    assert GrantFile(str(path), SERVICE).grants(b"s", b"q") == []


def test_a_file_that_was_replaced_is_read_anew(written: Path) -> None:
    file = GrantFile(str(written), SERVICE)
    assert len(file) == 120
    write_grants(written, grants(1, 1), SERVICE)
    assert len(file) == 1


def test_the_key_service_gets_the_hint_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_grants(path, grants(1, 1), SERVICE, hint=b"wrapped data key")
    assert len(GrantFile(str(path), SERVICE)) == 1


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        ("no.such.module:function", "cannot be imported here"),
        (f"{__name__}:no_such_function", "cannot be imported here"),
        ("", "cannot be imported here"),
        (f"{__name__}:failing_key", "failed with RuntimeError"),
        (f"{__name__}:short_key", "must return 32 bytes"),
    ],
)
def test_a_key_service_that_does_not_serve_is_told_without_its_words(
    written: Path, function: str, sentence: str
) -> None:
    with pytest.raises(MisuseError, match=sentence) as caught:
        GrantFile(str(written), KeyService(function)).check()
    assert "hunter2" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_each_kind_of_file_wants_its_kind_of_key(tmp_path: Path, written: Path) -> None:
    with pytest.raises(MisuseError, match="name the function"):
        GrantFile(str(written), Passphrase("x")).check()
    path = tmp_path / "other"
    write_grants(path, grants(1, 1), Passphrase("x"), cost=CHEAP)
    with pytest.raises(MisuseError, match="give the passphrase"):
        GrantFile(str(path), SERVICE).check()


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        (PassphraseFile("/no/such/file"), "cannot be read here"),
        (PassphraseVariable("QSR_TEST_UNSET"), "is not set in process"),
        (Passphrase(""), "the passphrase is empty"),
    ],
)
def test_a_passphrase_that_is_not_there_is_told(tmp_path: Path, key: FileKey, sentence: str) -> None:
    with pytest.raises(MisuseError, match=sentence):
        write_grants(tmp_path / "file", [], key, cost=CHEAP)
    assert not list(tmp_path.iterdir())


def test_a_passphrase_that_is_not_text_is_told(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"\xff\xfe")
    with pytest.raises(MisuseError, match="not UTF-8"):
        write_grants(tmp_path / "file", [], PassphraseFile(str(tmp_path / "secret")), cost=CHEAP)


def test_a_passphrase_is_the_same_in_a_file_and_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QSR_TEST", "grün")
    (tmp_path / "secret").write_text("grün\n", encoding="utf-8")
    write_grants(tmp_path / "file", grants(1, 1), PassphraseVariable("QSR_TEST"), cost=CHEAP)
    assert len(GrantFile(str(tmp_path / "file"), PassphraseFile(str(tmp_path / "secret")))) == 1


def test_a_missing_file_says_how_to_ship_it(tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match="--files"):
        GrantFile(str(tmp_path / "none"), SERVICE).check()


@pytest.mark.parametrize("data", [b"", b"PAR1 something else", b"QSRG\x01\0\0\0\0"])
def test_another_kind_of_file_is_told(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(StateError, match="not a grant or key file"):
        GrantFile(str(tmp_path / "file"), SERVICE).check()


def test_grants_are_narrowed_to_queues_and_epochs() -> None:
    every = grants(3, 4)
    assert list(narrowed(every, None, None)) == every
    kept = list(narrowed(every, frozenset({bytes(4)}), range(1, 3)))
    assert [(one.queue_id, one.epoch) for one in kept] == [(bytes(4), 1), (bytes(4), 2)]


def test_files_are_joined_in_order_with_each_grant_once() -> None:
    every = grants(3, 4)
    assert list(merged([every[:8], every[4:]])) == every
