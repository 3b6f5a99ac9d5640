"""What was deleted of pieces is proved by a note, and nothing else may be missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest

from ledgermq.cli.main import main
from ledgermq.formats.digest import content_digest
from ledgermq.model.errors import ConfigError, CorruptLogError
from ledgermq.model.limits import SYSTEM_TOPIC
from ledgermq.pipeline.pieces import piece_retention
from ledgermq.pipeline.pieces.cold_queues import ColdQueues
from ledgermq.pipeline.pieces.log_sealing import rebuild_manifest
from ledgermq.pipeline.pieces.piece_compaction import superseded_in
from ledgermq.pipeline.pieces.piece_manifest import read_manifest
from ledgermq.pipeline.pieces.piece_notes import check_notes
from ledgermq.pipeline.pieces.piece_places import NOTES, SealedFolder, SealedPlace
from ledgermq.pipeline.pieces.piece_retention import Expired, Pruned, drop
from tests.unit.cold.test_cold_reader import Watched
from tests.unit.pipeline.made_logs import MadeLog
from tests.unit.pipeline.pieces_dying import left_by_deaths
from tests.unit.pipeline.test_piece_compaction import (
    LATE_MS,
    compact,
    pulled,
    read_all,
    some_log,
)
from tests.unit.pipeline.test_piece_retention import (
    EACH,
    NOW_MS,
    drop_expired,
    everything,
    seal_made,
    verified,
)

pytestmark = pytest.mark.slow

Asked = tuple[str, int, int]


@pytest.fixture
def log() -> MadeLog:
    return some_log(11)


@pytest.fixture
def place(tmp_path: Path, log: MadeLog) -> SealedFolder:
    made = SealedFolder(tmp_path / "place")
    seal_made(made, log)
    return made


def chosen(log: MadeLog, *numbers: int) -> dict[Asked, bytes]:
    """The bytes of some messages of a log, by queue and offset."""
    messages = [log.messages[number] for number in numbers]
    return {(one.topic, one.queue_id, int(one.queue_offset)): log.record(one) for one in messages}


def delete(place: SealedPlace, log: MadeLog, *numbers: int, reason: str = "case 17") -> Pruned:
    """Drop these messages, as an operator has named them."""

    def find(manifest: object) -> list[Expired]:
        found = []
        for row in read_manifest(place).rows[:-1]:
            thinned: dict[str, list[int]] = {}
            for number in numbers:
                one = log.messages[number]
                if row.start <= one.physical_offset < row.end:
                    thinned.setdefault(one.topic, []).append(int(one.physical_offset))
            if thinned:
                places = {topic: np.array(sorted(one)) for topic, one in thinned.items()}
                found.append(Expired(row, {}, places, are_named=True))
        return found

    return drop(place, find, reason=reason)


def proved(place: SealedPlace) -> int:
    """How many messages notes say were deleted, after all of it was compared."""
    queues = ColdQueues(place, cache_bytes=0)
    return sum(check_notes(place, row, queues.piece(row)) for row in queues.manifest.rows)


def notes_in(place: SealedPlace) -> list[Path]:
    return sorted(Path(place.as_text(NOTES)).iterdir())


def test_messages_are_gone_and_the_note_proves_which(place: SealedFolder, log: MadeLog) -> None:
    before, wanted = read_all(place), chosen(log, 1, 3, 9, 10)
    done = delete(place, log, 1, 3, 9, 10)
    left = {key: one for key, one in before.items() if key not in wanted}

    assert read_all(place) == left
    assert verified(place) == len(left)
    assert proved(place) == len(wanted)
    assert sum(done.records.values()) == len(wanted)
    # Whoever has a copy of a message finds it in the note, by b2sum alone; and what was before is
    # made of what is left and of what went.
    found = {}
    for path in notes_in(place):
        note = json.loads(path.read_text().splitlines()[0])
        assert note["reason"] == "case 17"
        for topic, one in note["topics"].items():
            told = {(place, digest) for place, _, _, digest in one["deleted"]}
            found |= {(topic, queue, at): digest for _, queue, at, digest in one["deleted"]}
            there = {
                (int(message.physical_offset), digest_of(log.record(message)))
                for message in log.messages
                if message.topic == topic and note["start"] <= message.physical_offset < note["end"]
            }
            assert sum_of(there) == one["before"]
            assert sum_of(there - told) == one["after"]
    assert found == {key: digest_of(content) for key, content in wanted.items()}
    queues = ColdQueues(place)
    for number in (1, 3, 9, 10):
        assert queues.at(int(log.messages[number].physical_offset)) is None


def digest_of(content: bytes) -> str:
    return blake2b(content, digest_size=32).hexdigest()


def sum_of(records: set[tuple[int, str]]) -> str:
    made = blake2b(digest_size=32)
    for position, digest in sorted(records):
        made.update(position.to_bytes(8, "big") + bytes.fromhex(digest))
    return made.hexdigest()


def test_notes_follow_one_another_through_deletion_compaction_and_age(
    place: SealedFolder, log: MadeLog
) -> None:
    delete(place, log, 1)
    compact(place)
    delete(place, log, 2, 4)
    # Those that were dropped as superseded before are not deleted a second time.
    there = proved(place)
    assert 1 <= there <= 3
    assert len(notes_in(place)) >= 3
    rows = read_manifest(place).rows
    Path(place.as_text("manifest")).unlink()
    rebuild_manifest(place)
    assert read_manifest(place).rows == rows
    assert proved(place) == there
    assert verified(place) == len(read_all(place))
    assert (
        superseded_in(
            place, read_manifest(place), ["prices"], tombstones_before_ms=LATE_MS, share=0.0
        )
        == []
    )
    # What is dropped as a whole takes its notes along.
    drop_expired(place, everything, now_ms=NOW_MS * 2)
    assert proved(place) == 0
    assert notes_in(place) == []


def spoil_note(change: Callable[[bytes], bytes]) -> Callable[[SealedFolder], None]:
    def spoil(place: SealedFolder) -> None:
        path = notes_in(place)[0]
        path.write_bytes(change(path.read_bytes()))

    return spoil


def swap_notes(place: SealedFolder) -> None:
    first, second = notes_in(place)[:2]
    kept = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(kept)


def lose_note(place: SealedFolder) -> None:
    notes_in(place)[0].unlink()


@pytest.mark.parametrize("spoil", [swap_notes, lose_note, spoil_note(lambda old: old[:-1])])
def test_a_note_that_is_not_the_one_of_the_piece_is_found(
    place: SealedFolder, log: MadeLog, spoil: Callable[[SealedFolder], None]
) -> None:
    delete(place, log, 1, 9)
    assert proved(place) == 2
    spoil(place)
    with pytest.raises(CorruptLogError, match="note"):
        proved(place)


def test_one_flipped_byte_anywhere_in_a_note_is_found(place: SealedFolder, log: MadeLog) -> None:
    delete(place, log, 1)
    (path,) = notes_in(place)
    content = path.read_bytes()
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(CorruptLogError, match="note is not the one") as raised:
            proved(place)
        assert raised.value.details["file"] == str(path)
    path.write_bytes(content)
    assert proved(place) == 1


def forged(place: SealedFolder, log: MadeLog, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Drop messages by our own code, with notes that say something else, sums and digests right."""
    real = piece_retention._note_of

    def other(expired: Expired, run: object, noted: object) -> object:
        note = real(expired, run, noted)  # type: ignore[arg-type]
        assert note is not None
        if how == "none":
            return None
        topics = dict(note.topics)
        for topic, one in topics.items():
            assert one.deleted is not None
            changed = {
                # One of two is not told of; one that was not there is; another digest; two are
                # told as one; another one is named in its place.
                "fewer": one._replace(deleted=one.deleted[1:], dropped=one.dropped - 1),
                "more": one._replace(
                    deleted=(*one.deleted, one.deleted[0]._replace(position=1)),
                    dropped=one.dropped + 1,
                ),
                "counted": one._replace(dropped=one.dropped + 1),
                "other": one._replace(
                    deleted=(one.deleted[0]._replace(digest="ab" * 32), *one.deleted[1:])
                ),
                "after": one._replace(after=one.before),
                "compacted": one._replace(deleted=None, dropped=one.dropped - 1),
            }[how]
            topics[topic] = changed
        return note._replace(topics=topics)

    monkeypatch.setattr(piece_retention, "_note_of", other)
    numbers = [
        number
        for number, one in enumerate(log.messages[:EACH])
        if one.topic == "prices" and one.queue_id == log.messages[1].queue_id
    ]
    assert len(numbers) > 1
    delete(place, log, *numbers[:2])


@pytest.mark.parametrize("how", ["none", "fewer", "more", "counted", "other", "after", "compacted"])
def test_a_piece_that_lacks_something_else_than_its_notes_say_is_refused(
    place: SealedFolder, log: MadeLog, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    forged(place, log, monkeypatch, how)
    with pytest.raises(CorruptLogError, match=r"note"):
        proved(place)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("at_once", [1, 64])
def test_a_deletion_that_dies_anywhere_loses_nothing_else_and_is_ended_by_the_next_one(
    tmp_path: Path, log: MadeLog, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(piece_retention, "ROWS_AT_ONCE", at_once)
    numbers = (1, 3, 9)
    sealed = tmp_path / "sealed"
    seal_made(SealedFolder(sealed), log)
    every = read_all(SealedFolder(sealed))
    left = {key: one for key, one in every.items() if key not in chosen(log, *numbers)}

    def check(place: SealedFolder) -> None:
        found = read_all(place)
        assert left.items() <= found.items() <= every.items()
        assert verified(place) == len(found)
        assert proved(place) == len(every) - len(found)

    steps = 0
    deaths = left_by_deaths(sealed, lambda place: delete(place, log, *numbers), check)
    for steps, place in enumerate(deaths, 1):
        delete(place, log, *numbers)
        assert read_all(place) == left, steps
        assert proved(place) == len(numbers)
        drop(place, lambda _manifest: [])
        assert len(notes_in(place)) == 2, steps
    # The run's number; of two pieces a note, a file, and the file before; and their rows.
    assert steps == 1 + 2 * 3 + -(-2 // at_once)


def test_a_note_that_another_run_has_put_under_the_number_is_not_taken(
    place: SealedFolder, log: MadeLog
) -> None:
    put = place.put
    place.put = lambda name, parts: put(name, parts) and False  # type: ignore[method-assign]
    delete(place, log, 1)
    # The answers were lost, and what is there is what was put.
    assert proved(place) == 1
    place.put = lambda name, parts: (
        put(  # type: ignore[method-assign]
            name, [b"another one"] if name.startswith(NOTES) else parts
        )
        and not name.startswith(NOTES)
    )
    with pytest.raises(ConfigError, match="another run"):
        delete(place, log, 9)
    del place.put
    assert delete(place, log, 9).swept == 1
    assert proved(place) == 2


def test_the_command_deletes_by_offset_and_key_and_tells_what_stays(
    place: SealedFolder, log: MadeLog, capsys: pytest.CaptureFixture[str]
) -> None:
    where = place.as_text()

    def told(*words: str, status: int = 0) -> dict[str, object]:
        capsys.readouterr()
        assert main(["piece", *words, "--json"]) == status
        found: dict[str, object] = json.loads(capsys.readouterr().out)
        return found

    one = log.messages[1]
    named = ["delete", one.topic, str(one.queue_id), str(one.queue_offset), "--from", where]
    assert told(*named, "--dry-run") == {"deleted": 1, "left": 0}
    assert main(["piece", *named]) == 1
    assert "say so with --yes" in capsys.readouterr().err
    done = told(*named, "--yes", "--reason", "asked for")
    assert (done["deleted"], done["left"]) == (1, 0)
    (note,) = done["notes"]  # type: ignore[misc]
    assert note["reason"] == "asked for"
    assert Path(place.as_text(note["note"])).exists()
    assert told("verify", where)["deleted"] == 1
    assert main(["piece", *named, "--yes"]) == 1
    assert "in no piece" in capsys.readouterr().err
    # All with a key: some are in the last piece, which stays as it is.
    with_key = list(ColdQueues(place).with_key("prices", "a"))
    last = read_manifest(place).rows[-1].start
    stay = sum(record.position >= last for record in with_key)
    by_key = ["delete", "prices", "--key", "a", "--from", where]
    done = told(*by_key, "--yes", status=1 if stay else 0)
    assert (done["deleted"], done["left"]) == (len(with_key) - stay, stay)
    assert len(list(ColdQueues(place).with_key("prices", "a"))) == stay
    assert told("verify", where)["deleted"] == 1 + len(with_key) - stay
    for wrong in (["prices"], ["prices", "0"], ["prices", "0", "1", "--key", "a"],
                  [SYSTEM_TOPIC, "1", "0"]):  # fmt: skip
        assert main(["piece", "delete", *wrong, "--from", where]) == 1


@pytest.mark.parametrize("is_other_life", [False, True])
def test_a_node_keeps_nothing_in_its_cache_of_a_piece_that_was_written_anew(
    place: SealedFolder, log: MadeLog, tmp_path: Path, *, is_other_life: bool
) -> None:
    cache = tmp_path / "cache"
    watched = Watched(place, cache)
    for queue_id in (0, 1):
        pulled(watched, queue_id, 0, 1_000)
    names = {place.as_text(row.name) for row in read_manifest(place).rows}
    assert len(kept_in(cache, names)) == len(names)
    delete(place, log, 1)
    if is_other_life:
        watched = Watched(place, cache)
    watched.reader.refresh(1 << 62)
    there = {place.as_text(row.name) for row in read_manifest(place).rows}
    (gone,) = names - there
    assert kept_in(cache, {gone}) == set()
    assert len(kept_in(cache, names)) == len(names) - 1


def kept_in(cache: Path, pieces: set[str]) -> set[str]:
    """Those pieces of which the cache has something."""
    marks = {path.name.partition("-")[0] for path in cache.iterdir()}
    return {piece for piece in pieces if content_digest(piece.encode()).hex()[:32] in marks}
