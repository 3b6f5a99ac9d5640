"""Of each key the newest message stays, of one that was ended none, whoever is killed when."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ledgermq.formats.records.properties import decode_properties
from ledgermq.model.errors import CorruptLogError
from ledgermq.pipeline.columns.message_schema import COLUMNS
from ledgermq.pipeline.columns.row_filter import RowFilter
from ledgermq.pipeline.pieces import piece_retention
from ledgermq.pipeline.pieces.cold_queues import ColdBounds, ColdQueues
from ledgermq.pipeline.pieces.log_sealing import rebuild_manifest
from ledgermq.pipeline.pieces.piece_compaction import superseded_in
from ledgermq.pipeline.pieces.piece_manifest import PieceManifest, read_manifest
from ledgermq.pipeline.pieces.piece_places import SealedFolder, SealedPlace
from ledgermq.pipeline.pieces.piece_retention import (
    Expired,
    Pruned,
    TopicAge,
    drop,
    expired_in,
    merged,
)
from ledgermq.pipeline.source.piece_source import PieceSource
from ledgermq.wire.cold_frames import ColdNothing, ColdRecords
from tests.row_batches import batches_of
from tests.unit.cold.test_cold_reader import Watched, question, records_of
from tests.unit.pipeline.made_logs import STORED_MS, MadeLog, Written, made_log
from tests.unit.pipeline.pieces_dying import left_by_deaths
from tests.unit.pipeline.test_piece_retention import EACH, Read, seal_made, verified

pytestmark = pytest.mark.slow

PIECES_MADE = 6
NOW_MS = STORED_MS + 1_000 * PIECES_MADE * EACH
LATE_MS = NOW_MS - 1_000 * 2 * EACH
"""Tombstones from before the last two pieces may go."""

KEYLESS = "without a key"


def some_log(seed: int, *, entries: bool = True) -> MadeLog:
    """Two queues of a compacted topic, some keys, tombstones among the values; another topic."""
    chance = random.Random(seed)
    written = []
    for number in range(PIECES_MADE * EACH):
        key = chance.choice(("a", "b", "c d", "e", "f", "g", KEYLESS))
        body = b"" if chance.random() < 0.25 else b"value %d " % number * 9
        properties = "" if key == KEYLESS else f"KEYS\x01{key}"
        if number % 5 == 0:
            written.append(Written("others", 0, b"stays", b"KEYS\x01a", later_ms=1_000))
        else:
            written.append(
                Written("prices", chance.randrange(2), body, properties.encode(), later_ms=1_000)
            )
    return made_log(written, entries=entries)


def expected(log: MadeLog) -> Read:
    """What has to be there after a run that looks at every piece, by no code of ours."""
    newest: dict[tuple[int, str], int] = {}
    for number, one in enumerate(log.messages):
        key = decode_properties(one.properties).get("KEYS")
        if one.topic == "prices" and key:
            newest[one.queue_id, key] = number
    found: Read = {}
    for number, one in enumerate(log.messages):
        key = decode_properties(one.properties).get("KEYS")
        if one.topic == "prices" and key and number < len(log.messages) - EACH:
            is_ended = not one.body and one.store_timestamp < LATE_MS
            if newest[one.queue_id, key] != number or is_ended:
                continue
        found[one.topic, one.queue_id, int(one.queue_offset)] = log.record(one)
    return found


def read_all(place: SealedPlace) -> Read:
    """Each message of each queue, from the first offset on; holes are passed over, and no error."""
    queues = ColdQueues(place)
    found: Read = {}
    for name, bounds in queues.queues().items():
        for record in queues.read(name.topic, name.queue_id, bounds.first):
            offset = int.from_bytes(record.record[20:28], "big")
            key = name.topic, name.queue_id, offset
            assert key not in found
            found[key] = record.header + record.record
    return found


def compact(place: SealedPlace, *, share: float = 0.0) -> Pruned:
    def find(manifest: PieceManifest) -> list[Expired]:
        return superseded_in(
            place, manifest, ["prices", "nothing"], tombstones_before_ms=LATE_MS, share=share
        )

    return drop(place, find)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("entries", [True, False])
def test_the_newest_message_of_each_key_stays_byte_for_byte(
    seed: int, entries: bool, tmp_path: Path
) -> None:
    place, log = SealedFolder(tmp_path), some_log(seed, entries=entries)
    seal_made(place, log)
    before, bounds, left = read_all(place), ColdQueues(place).queues(), expected(log)
    done = compact(place)

    assert 0 < len(left) < len(before)
    assert read_all(place) == left
    assert verified(place) == len(left)
    assert dict(done.records) == {"prices": len(before) - len(left)}
    assert done.log_bytes["prices"] == sum(len(before[key]) for key in before.keys() - left.keys())
    # Queues begin and end where they did: what is missing in between was dropped on purpose.
    assert ColdQueues(place).queues() == bounds
    assert compact(place) == Pruned(0, 0, {}, {}, 0, 0)
    # A manifest that is made anew of the pieces says the same of them.
    rows = read_manifest(place).rows
    Path(place.as_text("manifest")).unlink()
    rebuild_manifest(place)
    assert read_manifest(place).rows == rows
    # From each offset on, a reader gets all that is left behind it, and is told of no hole.
    queues = ColdQueues(place)
    for name, known in bounds.items():
        assert isinstance(known, ColdBounds)
        offsets = sorted(key[2] for key in left if key[:2] == (name.topic, name.queue_id))
        for offset in range(known.first, known.end):
            found = [
                int.from_bytes(one.record[20:28], "big")
                for one in queues.read(name.topic, name.queue_id, offset)
            ]
            assert found == [one for one in offsets if one >= offset]


def test_spark_and_searches_have_what_is_left(tmp_path: Path) -> None:
    place, log = SealedFolder(tmp_path), some_log(1)
    seal_made(place, log)
    compact(place)
    left = expected(log)
    source = PieceSource(str(tmp_path))
    ranges = list(source.bounds(source.queues()).values())
    for parts in ([ranges], source.plan(ranges, split_bytes=300, splits_min=9)):
        rows = [
            (row["topic"], row["queueId"], row["queueOffset"])
            for part in parts
            for batch in batches_of(
                source.read(part, fail_on_data_loss=True), COLUMNS, RowFilter(), inflate=False
            )
            for row in batch.to_pylist()
        ]
        assert sorted(rows) == sorted(left)
    queues = ColdQueues(place)
    for one in log.messages:
        key = decode_properties(one.properties).get("KEYS")
        if key == "a":
            there = {record.position for record in queues.with_key(one.topic, "a")}
            is_left = (one.topic, one.queue_id, int(one.queue_offset)) in left
            assert (one.physical_offset in there) is is_left
        since = queues.first_since(one.topic, one.queue_id, one.store_timestamp)
        later = [
            int(other.queue_offset)
            for other in log.of_queue(one.topic, one.queue_id)
            if other.store_timestamp >= one.store_timestamp
            and (one.topic, one.queue_id, int(other.queue_offset)) in left
        ]
        assert since == min(later, default=None)


def test_a_piece_of_which_little_goes_stays_but_for_keys_that_were_ended(tmp_path: Path) -> None:
    place = SealedFolder(tmp_path)
    written = [Written("prices", 0, b"value", b"KEYS\x01k%d" % number) for number in range(7)]
    # One of eight is superseded in the first piece, and none in the second.
    written += [Written("prices", 0, b"once more", b"KEYS\x01k0")]
    written += [Written("prices", 0, b"value", b"KEYS\x01n%d" % number) for number in range(8)]
    log = made_log(written)
    seal_made(place, log)
    assert compact(place, share=0.25) == Pruned(0, 0, {}, {}, 0, 0)
    assert compact(place, share=0.125).records == {"prices": 1}
    shutil.rmtree(tmp_path)
    written[8] = Written("prices", 0, b"", b"KEYS\x01k3")
    written += [Written("prices", 0, b"value", b"KEYS\x01o%d" % number) for number in range(8)]
    seal_made(place, made_log(written))
    # Its key was ended: both go, however much of the pieces stays; and what else may, with them.
    assert compact(place, share=0.9).records == {"prices": 3}
    assert verified(place) == len(written) - 3


def test_a_topic_that_is_compacted_gets_no_older_than_it_is_kept(tmp_path: Path) -> None:
    place, log = SealedFolder(tmp_path), some_log(2)
    seal_made(place, log)
    left = expected(log)

    def find(manifest: PieceManifest) -> list[Expired]:
        age = TopicAge(1_000 * 3 * EACH)
        return merged(
            superseded_in(place, manifest, ["prices"], tombstones_before_ms=LATE_MS, share=0.0),
            expired_in(
                manifest, lambda topic: age if topic == "prices" else TopicAge(), now_ms=NOW_MS
            ),
        )

    compact(place)
    drop(place, find)
    first = min(log.messages[3 * EACH - 1 :], key=lambda one: one.physical_offset)
    kept = {
        (one.topic, one.queue_id, int(one.queue_offset))
        for one in log.messages
        if one.topic == "others" or one.physical_offset >= first.physical_offset
    }
    found = read_all(place)
    assert found.keys() <= left.keys()
    assert left.keys() & kept <= found.keys()
    assert verified(place) == len(found)
    # Both at once come to the same.
    shutil.rmtree(tmp_path)
    seal_made(place, log)
    drop(place, find)
    assert read_all(place) == found


def test_what_a_topic_has_no_more_in_a_piece_is_not_looked_for_again(tmp_path: Path) -> None:
    place = SealedFolder(tmp_path)
    written = [Written("others", 0, b"stays"), Written("prices", 0, b"old", b"KEYS\x01a")]
    written += [Written("others", 0, b"stays") for _ in range(EACH - 2)]
    written += [Written("prices", 0, b"new", b"KEYS\x01a")] * EACH
    seal_made(place, made_log(written))
    assert compact(place).records == {"prices": 1}

    def of_prices(topic: str) -> TopicAge:
        return TopicAge(1 if topic == "prices" else 0)

    assert expired_in(read_manifest(place), of_prices, now_ms=NOW_MS) == []
    # The queue goes on from its first offset all the same.
    assert ColdQueues(place).queues()["prices", 0] == (0, 1 + EACH)
    assert len(list(ColdQueues(place).read("prices", 0, 0))) == EACH


@pytest.mark.long(but=1)
@pytest.mark.parametrize(("seed", "at_once"), [(0, 1), (1, 64)])
def test_a_run_that_dies_anywhere_loses_nothing_and_revives_no_key(
    seed: int, at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(piece_retention, "ROWS_AT_ONCE", at_once)
    log = some_log(seed)
    seal_made(SealedFolder(tmp_path / "sealed"), log)
    every, left = read_all(SealedFolder(tmp_path / "sealed")), expected(log)

    def check(place: SealedFolder) -> None:
        found = read_all(place)
        assert left.items() <= found.items() <= every.items()
        assert verified(place) == len(found)
        # The newest message of each key that is there is the one that was written last: of none an
        # older one came to light again because its tombstone has gone.
        assert revived(log, found) == set()

    steps = 0
    for steps, place in enumerate(left_by_deaths(tmp_path / "sealed", compact, check), 1):
        compact(place)
        assert read_all(place) == left, steps
        compact(place)
    assert steps > 2 * (PIECES_MADE - 1)


def revived(log: MadeLog, found: Read) -> set[tuple[int, str]]:
    """Keys that have a value in what is there, and had none when it was written."""
    written: dict[tuple[int, str], bytes] = {}
    there: dict[tuple[int, str], bytes] = {}
    for one in log.messages:
        key = decode_properties(one.properties).get("KEYS")
        if one.topic != "prices" or not key:
            continue
        written[one.queue_id, key] = bytes(one.body)
        if (one.topic, one.queue_id, int(one.queue_offset)) in found:
            there[one.queue_id, key] = bytes(one.body)
    return {key for key, body in there.items() if body != written[key]}


def test_one_flipped_byte_in_each_part_of_what_is_left_is_found(tmp_path: Path) -> None:
    place, log = SealedFolder(tmp_path), some_log(3)
    seal_made(place, log)
    compact(place)
    row = read_manifest(place).rows[0]
    assert row.dropped
    file = Path(place.as_text(row.name))
    content = file.read_bytes()
    for at in range(0, len(content), 11):
        file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(CorruptLogError):
            verified(place)
    file.write_bytes(content)
    assert verified(place) == len(expected(log))


def test_consumers_go_on_behind_what_was_dropped(tmp_path: Path) -> None:
    """The process that serves pulls gives offsets with holes, and says nothing of them is gone."""
    place, log = SealedFolder(tmp_path / "place"), some_log(4)
    seal_made(place, log)
    compact(place)
    left = expected(log)
    watched = Watched(place, tmp_path / "cache")
    for queue_id in (0, 1):
        offsets = sorted(key[2] for key in left if key[:2] == ("prices", queue_id))
        for first in range(offsets[-1] + 1):
            for messages in (1, 3, 1_000):
                found = pulled(watched, queue_id, first, messages)
                assert found == [one for one in offsets if one >= first], (first, messages)


def pulled(watched: Watched, queue_id: int, first: int, messages: int) -> list[int]:
    """Offsets of the messages that pulls give from ``first`` on, to the end of the pieces."""
    found: list[int] = []
    while True:
        asked = replace(question(queue_id, first, messages=messages), topic="prices")
        answer = watched.reader.answer(asked)
        if isinstance(answer, ColdNothing):
            assert (answer.next_offset, answer.is_gone) == (-1, True)
            return found
        assert isinstance(answer, ColdRecords)
        found += [int.from_bytes(record[20:28], "big") for record in records_of(answer)]
        assert answer.next_offset > found[-1] >= first
        first = answer.next_offset
