"""Pieces of topics with keys: by the key the very bytes of the log, without it none of them."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledgermq.cli.main import main
from ledgermq.formats.batch_unit import INNER_NUM
from ledgermq.formats.records.message import INNER_BATCH
from ledgermq.model.errors import ConfigError, CorruptLogError, KeyMissingError
from ledgermq.model.exit_status import EXIT_CONFIG
from ledgermq.pipeline.pieces.cold_queues import ColdQueues
from ledgermq.pipeline.pieces.locked_rows import OPEN_COLUMNS, unlock
from ledgermq.pipeline.pieces.log_sealing import seal_log
from ledgermq.pipeline.pieces.piece_file import PieceFile
from ledgermq.pipeline.pieces.piece_manifest import add_row, read_manifest, row_of
from ledgermq.pipeline.pieces.piece_places import PIECES, SealedFolder, file_name
from ledgermq.pipeline.pieces.piece_retention import TopicAge, drop, expired_in
from ledgermq.pipeline.pieces.piece_seal import SealedPiece, locked_name, seal_stretch
from ledgermq.pipeline.pieces.topic_keys import (
    KEYS_VARIABLE,
    key_file,
    key_name,
    locking_key,
    unlocking_key,
)
from ledgermq.store.log_reader import LogReader
from ledgermq.store.store_directory import open_directory
from tests.small_store import write_store
from tests.unit.pipeline.made_logs import STORED_MS, WRITTEN, MadeLog, Memory, Written, made_log
from tests.unit.pipeline.test_sealed_pieces import forged

SECRET, OPEN, OTHER = "payroll", "orders", "a%b"
EACH = 10
COUNT = 3 * EACH
HOUR_MS = 3_600_000
AWAY = "locked with a key that is not here"


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of keys, with one for ``SECRET``."""
    folder = tmp_path / "keys"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv(KEYS_VARIABLE, str(folder))
    assert main(["piece", "key", SECRET]) == 0
    return folder


def some_log(*, entries: bool = True) -> MadeLog:
    """A message an hour, of three topics in turn."""
    return made_log(
        [
            Written(
                (SECRET, OPEN, OTHER)[number % 3],
                number // 3 % 2,
                b"body-of-%d" % number * 20,
                f"KEYS\x01key-of-{number}\x02TAGS\x01tag-of-{number % 3}".encode(),
                later_ms=HOUR_MS,
            )
            for number in range(COUNT)
        ],
        entries=entries,
        base=900,
        blank=bytes(30),
    )


def sealed(log: MadeLog, begin: int = 0, end: int | None = None) -> SealedPiece:
    return seal_stretch(
        memoryview(log.content),
        begin,
        len(log.content) if end is None else end,
        header_size=log.header_size,
        base=log.base,
        group_bytes=2_000,
        keys=locking_key,
    )


def piece_of(content: bytes) -> PieceFile:
    return PieceFile(Memory(content))


def found_in(piece: PieceFile, log: MadeLog, topic: str) -> list[bytes]:
    """All messages of a topic, by queue, in the order of the log."""
    return [
        one.header + one.record
        for queue in (0, 1)
        if log.of_queue(topic, queue)
        for one in piece.queue(topic, queue, 0)
    ]


def written_to(log: MadeLog, topic: str) -> list[bytes]:
    return [log.record(one) for queue in (0, 1) for one in log.of_queue(topic, queue)]


@pytest.mark.parametrize("entries", [True, False], ids=["entries", "plain"])
def test_who_has_the_key_has_the_very_bytes_and_who_has_not_has_the_other_topics(
    keys: Path, *, entries: bool
) -> None:
    log = some_log(entries=entries)
    content = b"".join(sealed(log).parts)
    piece = piece_of(content)
    assert bytes(piece.log()) == log.content
    assert piece.verify() == COUNT
    assert not piece.closed_rows()
    for topic in (SECRET, OPEN, OTHER):
        assert found_in(piece, log, topic) == written_to(log, topic)
    (message,) = piece.with_key(SECRET, "key-of-3")
    assert b"body-of-3" in message.record
    assert piece.at(message.position) == message

    (path,) = keys.iterdir()
    name = key_name(bytes.fromhex(path.read_text()))
    path.unlink()
    for read in (
        lambda: found_in(piece, log, SECRET),
        lambda: list(piece.with_key(SECRET, "key-of-3")),
        lambda: piece.at(message.position),
        piece.log,
    ):
        with pytest.raises(KeyMissingError, match=AWAY) as raised:
            read()
        assert (raised.value.details["topic"], raised.value.details["key"]) == (SECRET, name)
    for topic in (OPEN, OTHER):
        assert found_in(piece, log, topic) == written_to(log, topic)
        first = log.of_queue(topic, 0)[1]
        at = piece.at(first.physical_offset)
        assert at is not None and at.header + at.record == log.record(first)
    assert len(list(piece.with_key(OPEN, "key-of-4"))) == 1
    # Where its messages are, and when they came, is no secret.
    assert piece.first_since(SECRET, 0, log.of_queue(SECRET, 0)[2].store_timestamp) == 2
    assert (piece.verify(), piece.closed_rows()) == (COUNT, {SECRET: EACH})


def test_nothing_of_a_message_is_in_the_file_in_the_clear(keys: Path, tmp_path: Path) -> None:
    path = tmp_path / "piece.parquet"
    path.write_bytes(b"".join(sealed(some_log()).parts))
    rows = pq.read_table(path).to_pylist()
    of_secret = [row for row in rows if row["topic"] == SECRET]
    assert len(rows) == COUNT
    assert len(of_secret) == EACH
    for row in of_secret:
        assert {name for name, value in row.items() if value is not None} <= OPEN_COLUMNS
    assert all(row["body"].startswith(b"body-of-") for row in rows if row["topic"] != SECRET)
    piece = piece_of(path.read_bytes())
    assert [piece.filters()[number] for number in piece.footer.locked] == [b""] * len(
        piece.footer.locked
    )


@pytest.mark.slow
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(written=st.lists(WRITTEN, min_size=1, max_size=14), entries=st.booleans(), data=st.data())
def test_any_log_is_given_back_whatever_topics_have_keys(
    keys: Path, *, written: list[Written], entries: bool, data: st.DataObject
) -> None:
    log = made_log(written, entries=entries)
    topics = sorted({one.topic for one in written})
    locked = data.draw(st.sets(st.sampled_from(topics)))
    for topic in topics:
        path = key_file(topic)
        assert path is not None
        path.unlink(missing_ok=True)
        if topic in locked:
            path.write_text(f"{topic.encode().hex():0>64.64}\n")
            path.chmod(0o600)
    piece = piece_of(b"".join(sealed(log).parts))
    assert bytes(piece.log()) == log.content
    assert piece.verify() == len(written)
    assert {one.topic for one in piece.footer.locked.values()} == locked


def test_records_of_several_messages_are_counted_without_the_key(keys: Path) -> None:
    log = made_log(
        [
            Written(SECRET, 0, b"some", f"{INNER_NUM}\x013".encode(), sys_flag=INNER_BATCH),
            Written(OPEN, 0, b"open"),
        ]
    )
    piece = piece_of(b"".join(sealed(log).parts))
    (path,) = keys.iterdir()
    path.unlink()
    ((run,), batched) = piece.footer.runs[SECRET], piece.footer.batched
    assert (run.rows, run.end, batched) == (1, 3, (SECRET,))
    assert piece.verify() == 2


def test_a_flipped_byte_of_a_locked_part_is_named_with_and_without_the_key(keys: Path) -> None:
    content = bytearray(b"".join(sealed(some_log()).parts))
    piece = piece_of(bytes(content))
    (path,) = keys.iterdir()
    for number, locked in piece.footer.locked.items():
        at = locked.part.at + locked.part.size // 2
        content[at] ^= 1
        broken = piece_of(bytes(content))
        for is_here in (True, False):
            text = path.read_text()
            if not is_here:
                path.unlink()
            for look in (broken.verify, broken.check_sums):
                with pytest.raises(CorruptLogError) as raised:
                    look()
                assert raised.value.details["part"] == f"locked rows of group {number}"
            path.write_text(text)
            path.chmod(0o600)
        content[at] ^= 1


@pytest.mark.parametrize("moved", ["stretch", "number"])
def test_locked_rows_do_not_open_in_the_place_of_others(keys: Path, moved: str) -> None:
    log = some_log()
    piece = piece_of(b"".join(sealed(log).parts))
    said = piece.footer
    first, second = (number for number, one in said.locked.items())
    of_whom = second if moved == "number" else first
    taken = piece.locked_bytes(of_whom)._replace(number=piece.locked_bytes(first).number)
    begin = said.start + 1 if moved == "stretch" else said.start

    with pytest.raises(CorruptLogError, match="under another name"):
        unlock(
            taken.content,
            unlocking_key(taken.topic, taken.key, where=""),
            locked_name(replace(said, start=begin), taken.topic, taken.number),
            rows=said.groups[of_whom].rows,
            columns=None,
            part="",
            where="",
        )


def test_a_new_key_is_put_before_the_old_one_and_both_unlock(keys: Path) -> None:
    log = some_log()
    old = b"".join(sealed(log).parts)
    (path,) = keys.iterdir()
    first = path.read_text()
    path.write_text("ab" * 32 + "\n" + first)
    new = b"".join(sealed(log).parts)
    assert {one.key for one in piece_of(new).footer.locked.values()} == {
        key_name(bytes.fromhex("ab" * 32))
    }
    assert all(bytes(piece_of(one).log()) == log.content for one in (old, new))
    # The old one goes, and what it has locked.
    path.write_text("ab" * 32 + "\n")
    assert bytes(piece_of(new).log()) == log.content
    with pytest.raises(KeyMissingError):
        piece_of(old).log()
    for text, reason in (("", "no keys of a topic"), ("ab" * 31, "no keys of a topic")):
        path.write_text(text)
        with pytest.raises(ConfigError, match=reason):
            locking_key(SECRET)
    path.write_text("ab" * 32)
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="others can read"):
        unlocking_key(SECRET, "0" * 16, where="")


def test_pieces_are_pruned_without_the_keys_of_what_stays(keys: Path, tmp_path: Path) -> None:
    log = some_log()
    place = SealedFolder(tmp_path / "place")
    begin = 0
    for number in (EACH, 2 * EACH, COUNT):
        last = log.messages[number - 1]
        end = int(last.physical_offset) + last.size - log.base
        one = sealed(log, begin, end)
        place.put(f"{PIECES}/{file_name(one.footer.start, one.footer.end)}", one.parts)
        add_row(place, row_of(one.footer, size=one.size, tail=one.tail))
        begin = end
    (path,) = keys.iterdir()
    key = path.read_text()
    path.unlink()
    now_ms = STORED_MS + COUNT * HOUR_MS

    def pruned(*topics: str) -> dict[str, int]:
        def age_of(topic: str) -> TopicAge:
            return TopicAge(HOUR_MS) if topic in topics else TopicAge()

        return dict(drop(place, lambda found: expired_in(found, age_of, now_ms=now_ms)).records)

    def read() -> list[bytes]:
        queues = ColdQueues(place)
        return [
            one.header + one.record for queue in (0, 1) for one in queues.read(SECRET, queue, 0)
        ]

    assert set(pruned(OPEN)) == {OPEN}
    with pytest.raises(KeyMissingError):
        read()
    path.write_text(key)
    path.chmod(0o600)
    assert read() == written_to(log, SECRET)
    path.unlink()
    # What has no key goes by its age, too.
    gone = pruned(SECRET)
    left = [row for row in read_manifest(place).rows if SECRET in row.queues]
    assert gone[SECRET] == sum(one.topic == SECRET for one in log.messages[: 2 * EACH])
    assert len(left) == 1


def test_the_command_makes_keys_seals_with_them_and_says_what_is_missing(
    keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, place = tmp_path / "store", str(tmp_path / "place")
    store.mkdir()
    write_store(store, entries=True, messages=10)
    assert main(["piece", "key", "LEDGERMQ_SYSTEM"]) == EXIT_CONFIG
    assert "has no key" in capsys.readouterr().err
    assert main(["piece", "key", "orders", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert main(["piece", "key", "orders"]) == EXIT_CONFIG
    assert "not overwritten" in capsys.readouterr().err
    assert main(["piece", "seal", str(store), "--to", place]) == 0

    def read() -> int:
        return main(["piece", "read", "orders", "1", "2", "--from", place])

    assert read() == 0
    assert main(["piece", "verify", place]) == 0
    assert "locked" not in capsys.readouterr().out
    Path(made["file"]).unlink()
    assert read() == EXIT_CONFIG
    told = capsys.readouterr().err
    assert AWAY in told and "'orders'" in told and made["key"] in told
    assert main(["piece", "verify", place]) == 0
    assert "10 of them, of orders, are locked with a key that is not here" in (
        capsys.readouterr().out
    )


def test_a_topic_that_is_locked_is_never_sealed_in_the_clear_behind_that(
    keys: Path, tmp_path: Path
) -> None:
    store, place = tmp_path / "store", SealedFolder(tmp_path / "place")
    store.mkdir()
    write_store(store, entries=True, messages=10)
    assert main(["piece", "key", "orders"]) == 0
    with closing(LogReader(open_directory(store))) as reader:
        ends = [one.position for one in reader.iterate()]
        seal_log(place, reader, ends[len(ends) // 2])
        (keys / "orders.key").rename(keys / "elsewhere")
        with pytest.raises(ConfigError, match="locked until now") as raised:
            seal_log(place, reader, reader.end)
        assert raised.value.details["topic"] == "orders"
        (keys / "elsewhere").rename(keys / "orders.key")
        seal_log(place, reader, reader.end)
    assert {topic for row in read_manifest(place).rows for topic in row.locked} == {"orders"}
    assert (
        sum(PieceFile(place.ranges(row.name)).verify() for row in read_manifest(place).rows) == 10
    )


@pytest.mark.slow
def test_no_number_of_a_locked_part_is_believed(keys: Path) -> None:
    content = b"".join(sealed(some_log()).parts)
    locked = piece_of(content).footer.locked
    assert len(locked) > 1
    for row in range(len(locked)):
        # Group, number, place, size and sum; the topic and the name of a key say whose it is.
        for field in (0, 3, 4, 5, 6):
            for value in (-1, 0, 1, 1 << 40, (1 << 63) - 1, 1 << 80, "1", None, 0.5, []):
                was: list[object] = []

                def change(
                    found: dict[str, list[list[object]]],
                    place: tuple[int, int] = (row, field),
                    value: object = value,
                    was: list[object] = was,
                ) -> None:
                    was.append(found["locked"][place[0]][place[1]])
                    found["locked"][place[0]][place[1]] = value

                try:
                    piece_of(forged(content, change)).verify()
                except CorruptLogError:
                    continue
                assert was == [value], (row, field)
