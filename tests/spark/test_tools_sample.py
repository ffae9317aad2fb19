"""Samples: real queues, and defects that are what the manifest says they are."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pyspark_udfs.defects import Defect, Layout, parse_defects, plan_defects
from pyspark_udfs.file_key import Passphrase
from pyspark_udfs.grant_file import GrantFile, KeyFile
from pyspark_udfs.sample import Sample, expected_findings, make_sample, message_of
from qsratchet import (
    FrameRejected,
    FrameType,
    Message,
    MisuseError,
    OutsideGrant,
    Tampered,
    UnknownSuite,
    derive_grants,
    header_of,
)
from qsratchet.crypto.passphrase import ScryptCost

CHEAP = ScryptCost(log_n=14)
KEY = Passphrase("sample")
CLEAN = Sample(queues=5, messages=300, epoch_messages=80, message_size=100, huge=700)
DAMAGED = Sample(queues=30, messages=120, epoch_messages=40, message_size=60, defects=parse_defects("all"))


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("clean") / "sample"
    make_sample(path, CLEAN, KEY, cost=CHEAP)
    return path


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("damaged") / "sample"
    make_sample(path, DAMAGED, KEY, cost=CHEAP)
    return path


def rows(path: Path) -> list[dict[str, Any]]:
    table: list[dict[str, Any]] = pq.read_table(path / "export").to_pylist()
    return table


def test_every_message_of_a_clean_sample_opens_to_what_the_seed_says(clean: Path) -> None:
    grants = GrantFile(str(clean / "audit.grants"), KEY)
    sizes = []
    for index in range(CLEAN.queues):
        queue_id = CLEAN.queue_id(index)
        by_epoch = {grant.epoch: grant for grant in grants.grants(CLEAN.service_id, queue_id)}
        mine = [row for row in rows(clean) if row["queue_id"] == queue_id]
        assert [row["seq"] for row in mine] == list(range(CLEAN.layout(index).frames))
        for row in mine:
            header = header_of(row["frame"])
            assert (header.epoch, header.type.name, header.seq) == (row["epoch"], row["type"], row["seq"])
            opened = by_epoch[header.epoch].open(row["frame"])
            if header.type is FrameType.DATA:
                assert isinstance(opened, Message)
                assert opened.body == message_of(CLEAN, index, header.seq)
                sizes.append(len(opened.body))
    assert len(sizes) == 700 + 4 * 300
    assert 60 < sum(sizes) / len(sizes) < 140
    assert len(set(sizes)) > 10


def test_the_owners_keys_derive_the_grants_that_are_there(clean: Path) -> None:
    grants = list(GrantFile(str(clean / "audit.grants"), KEY))
    derived = []
    offered = set()
    for keys in KeyFile(str(clean / "owner.keys"), KEY):
        offered.add(len(keys.key_ids))
        control = [row["frame"] for row in rows(clean) if row["queue_id"] == keys.queue_id and row["type"] != "DATA"]
        derived += list(derive_grants(control, keys))
    assert derived == grants
    assert max(offered) > 1, "no queue has a key offer"


def test_each_head_proves_the_end_of_its_queue(clean: Path) -> None:
    grants = GrantFile(str(clean / "audit.grants"), KEY)
    heads = pq.read_table(clean / "heads.parquet").to_pylist()
    assert len(heads) == CLEAN.queues
    for index, row in enumerate(heads):
        last = grants.grants(row["service_id"], row["queue_id"])[-1]
        frames = CLEAN.layout(index).frames
        assert last.verify_head(row["head"], row["nonce"], next_seq=frames).next_seq == frames


def test_an_export_is_sorted_and_its_control_frames_are_found_without_reading_frames(clean: Path) -> None:
    places = [(row["service_id"], row["queue_id"], row["seq"]) for row in rows(clean)]
    assert places == sorted(places)
    file = pq.ParquetFile(clean / "export" / "part-00000.parquet")
    group = file.metadata.row_group(0)
    assert [column.column_index for column in group.sorting_columns] == [0, 1, 2]
    frame = group.column(file.schema_arrow.get_field_index("frame"))
    assert frame.compression == "UNCOMPRESSED"
    assert not frame.is_stats_set
    assert group.column(file.schema_arrow.get_field_index("type")).is_stats_set


def test_the_same_seed_plants_the_same_and_another_seed_something_else(damaged: Path, tmp_path: Path) -> None:
    manifest = json.loads((damaged / "manifest.json").read_text())
    again = make_sample(tmp_path / "again", DAMAGED, KEY, cost=CHEAP)
    assert again["planted"] == manifest["planted"]
    other = plan_defects(DAMAGED.defects, [DAMAGED.layout(index) for index in range(30)], 2)
    assert [one.seq for one in other] != [one["seq"] for one in manifest["planted"]]


def test_each_planted_defect_is_what_its_name_says(damaged: Path) -> None:
    manifest = json.loads((damaged / "manifest.json").read_text())
    grants = GrantFile(str(damaged / "audit.grants"), KEY)
    keys = KeyFile(str(damaged / "owner.keys"), KEY)
    table = rows(damaged)
    checks: dict[str, Callable[[dict[str, Any]], None]] = {}

    def frames(one: dict[str, Any], seq: int) -> list[bytes]:
        return [row["frame"] for row in table if row["queue_id"].hex() == one["queue_id"] and row["seq"] == seq]

    def granted(one: dict[str, Any]) -> Any:
        found = grants.grants(DAMAGED.service_id, bytes.fromhex(one["queue_id"]))
        return next(grant for grant in found if grant.epoch == one["epoch"])

    def refused(one: dict[str, Any], verdict: type[FrameRejected]) -> None:
        (frame,) = frames(one, one["seq"])
        with pytest.raises(verdict):
            granted(one).open(frame)

    def absent(one: dict[str, Any]) -> None:
        assert not any(frames(one, seq) for seq in range(one["seq"], one["last_seq"] + 1))

    def gap(one: dict[str, Any]) -> None:
        absent(one)
        assert frames(one, one["seq"] - 1)
        assert frames(one, one["last_seq"] + 1)

    def cut(one: dict[str, Any]) -> None:
        absent(one)
        assert not frames(one, one["last_seq"] + 1)

    def duplicate(one: dict[str, Any]) -> None:
        first, second = frames(one, one["seq"])
        assert first == second

    def fork(one: dict[str, Any]) -> None:
        first, second = frames(one, one["seq"])
        bodies = {granted(one).open(first).body, granted(one).open(second).body}
        assert len(bodies) == 2

    def reordered(one: dict[str, Any]) -> None:
        for place, number in ((one["seq"], one["last_seq"]), (one["last_seq"], one["seq"])):
            (frame,) = frames(one, place)
            assert granted(one).open(frame).seq == number

    def wrong_queue(one: dict[str, Any]) -> None:
        refused(one, Tampered)
        (frame,) = frames(one, one["seq"])
        queues = sorted({row["queue_id"] for row in table})
        home = queues[queues.index(bytes.fromhex(one["queue_id"])) + 1]
        assert grants.grants(DAMAGED.service_id, home)[0].open(frame).seq == one["seq"]

    def no_grant(one: dict[str, Any]) -> None:
        with pytest.raises(StopIteration):
            granted(one)
        assert keys.keys(DAMAGED.service_id, bytes.fromhex(one["queue_id"])) is not None

    checks = {
        "gap": gap,
        "duplicate": duplicate,
        "fork": fork,
        "reordered": reordered,
        "tampered": lambda one: refused(one, Tampered),
        "wrong queue": wrong_queue,
        "wrong epoch": lambda one: refused(one, OutsideGrant),
        "unknown suite": lambda one: refused(one, UnknownSuite),
        "no grant": no_grant,
        "update missing": gap,
        "tail cut off": cut,
    }
    assert Counter(one["kind"] for one in manifest["planted"]) == Counter(kind.value for kind in Defect)
    for one in manifest["planted"]:
        checks[one["kind"]](one)
    # One to a queue, so that no defect hides another.
    assert len({one["queue_id"] for one in manifest["planted"]}) == len(Defect)


def test_an_audit_is_expected_to_say_what_was_planted(damaged: Path) -> None:
    manifest = json.loads((damaged / "manifest.json").read_text())
    expected = expected_findings(manifest)
    # The partner of a reordered frame, and the number of a missing update, are findings of their own.
    assert len(expected) == len(manifest["planted"]) + 2


def test_more_defects_than_queues_lie_in_epochs_of_their_own() -> None:
    layouts = [Layout(epochs=(20,) * 30) for _ in range(3)]
    planted = plan_defects({Defect.TAMPERED: 20}, layouts, 7)
    places = sorted((one.queue, one.epoch) for one in planted)
    assert len(set(places)) == 20
    assert all(a[0] != b[0] or b[1] - a[1] > 1 for a, b in pairwise(places))


def test_defects_without_room_are_told() -> None:
    with pytest.raises(MisuseError, match="there is no room"):
        plan_defects({Defect.GAP: 1}, [Layout(epochs=(2,))], 1)
    with pytest.raises(MisuseError, match="there is no room"):
        plan_defects({Defect.UPDATE_MISSING: 1}, [Layout(epochs=(20,))], 1)
    with pytest.raises(MisuseError, match="there is no room"):
        plan_defects({Defect.WRONG_QUEUE: 1}, [Layout(epochs=(20,))], 1)


def test_kinds_of_defects_are_read_as_people_write_them() -> None:
    assert parse_defects("") == {}
    assert parse_defects("all:2") == dict.fromkeys(Defect, 2)
    assert parse_defects("gap:3, tail-cut-off,Wrong_Queue") == {
        Defect.GAP: 3,
        Defect.TAIL_CUT_OFF: 1,
        Defect.WRONG_QUEUE: 1,
    }
    for text in ("gaps", "gap:x"):
        with pytest.raises(MisuseError, match="kind of defect"):
            parse_defects(text)


@pytest.mark.parametrize(
    "wrong", [{"queues": 0}, {"messages": 0}, {"epoch_messages": 0}, {"message_size": 0}, {"suite": 9}]
)
def test_a_sample_that_cannot_be_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(MisuseError):
        Sample(**wrong)  # type: ignore[arg-type]


def test_an_interrupted_sample_leaves_nothing(tmp_path: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_sample(tmp_path / "sample", CLEAN, KEY, cost=CHEAP, progress=interrupt)
    assert not list(tmp_path.iterdir())


def test_a_sample_does_not_overwrite_anything(clean: Path) -> None:
    with pytest.raises(MisuseError, match="is there already"):
        make_sample(clean, CLEAN, KEY, cost=CHEAP)


def test_chunks_made_by_several_processes_give_one_sorted_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark_udfs.sample.CHUNK_MESSAGES", 500)
    done: list[tuple[int, int]] = []
    small = Sample(queues=30, messages=60, epoch_messages=20, message_size=30, defects=parse_defects("wrong queue:3"))
    manifest = make_sample(tmp_path / "s", small, KEY, cost=CHEAP, jobs=2, progress=lambda *at: done.append(at))
    assert len(list((tmp_path / "s" / "export").iterdir())) >= 3
    assert done[-1] == (1_800, 1_800)
    table = rows(tmp_path / "s")
    places = [(row["queue_id"], row["seq"]) for row in table]
    assert places == sorted(places)
    assert len(places) == manifest["frames"]
    assert len(GrantFile(str(tmp_path / "s" / "audit.grants"), KEY)) == manifest["grants"]
