"""A damaged log is no torn tail: flipped and cut at every border, on both sides of its end."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import Index, Position, QueueOffset, Term
from ledgermq.store.log.log_writer import LogEnd, LogWriter, StampedRun
from ledgermq.store.recovery import recovery
from ledgermq.store.recovery.log_checkpoint import LogCheckpoint
from ledgermq.store.recovery.log_damage import LogDamage
from ledgermq.store.recovery.recovery import ForeignEnd, RecoveredLog, Verdict, recover_log
from tests.unit.store.records import frame_of, record

FILE_SIZE = 4_096
HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
STORED_AT = 1_700
BODIES = [bytes([number + 1]) * (100 + 40 * (number % 4)) for number in range(40)]
DURABLE = 30
"""So many records are before the checkpoint."""

BEFORE = (0, 1, 11, 12, 13, DURABLE - 2, DURABLE - 1)
BEHIND = (DURABLE, DURABLE + 1, 33, len(BODIES) - 2, len(BODIES) - 1)


class Written(NamedTuple):
    """A log of some files: where its records begin, its end, and its checkpoint."""

    root: Path
    entries: bool
    starts: list[int]
    ends: list[LogEnd]
    checkpoint: LogCheckpoint


def write_log(root: Path, *, entries: bool) -> Written:
    if entries:
        # The size of index files is that of those there are.
        (root / "index").mkdir(parents=True)
        (root / "index" / f"{0:020d}").write_bytes(bytes(4_096))
    found = recover(root, entries=entries)
    writer = LogWriter(found.data, found.index, end=found.end, store_host=HOST)
    starts, ends = [], []
    for number, body in enumerate(BODIES):
        raw = record(body, number=number, header_size=writer.header_size)
        payload, sizes = frame_of([raw])
        writer.put(
            payload,
            sizes,
            [StampedRun(1, QueueOffset(number))],
            term=Term(1 + number // 8),
            store_timestamp=STORED_AT + number,
        )
        writer.publish()
        ends.append(writer.end)
        starts.append(writer.end.position - len(raw))
    writer.close()
    return Written(root, entries, starts, ends, LogCheckpoint(ends[DURABLE - 1], FILE_SIZE))


def recover(
    root: Path,
    *,
    entries: bool,
    checkpoint: LogCheckpoint | None = None,
    damages: list[LogDamage] | None = None,
    known: LogDamage | None = None,
    foreign: ForeignEnd | None = None,
    certain_before_ms: int | None = None,
) -> RecoveredLog:
    """Damage is noted in ``damages``; without such a list it is refused."""
    options: dict[str, Callable[[LogDamage], None]] = {}
    if damages is not None:
        options["on_damage"] = damages.append
    if foreign is None:
        foreign = ForeignEnd(Index(-1), 0)
    return recover_log(
        root / "data",
        root / "index" if entries else None,
        file_size=FILE_SIZE,
        checkpoint=checkpoint,
        progress=lambda _done, _total: None,
        known=known,
        foreign=foreign,
        certain_before_ms=certain_before_ms,
        **options,
    )


@pytest.fixture(scope="module", params=[True, False], ids=["dledger", "commitlog"])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    log = write_log(tmp_path_factory.mktemp("log"), entries=request.param)
    assert len(list((log.root / "data").iterdir())) > 2
    return log


@pytest.fixture(autouse=True)
def without_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No power fails here."""
    monkeypatch.setattr(recovery, "_sync", lambda directory, file_size, begin: None)


@pytest.fixture
def copies(written: Written, tmp_path: Path) -> Iterator[Callable[[], Written]]:
    """Makes a fresh copy of the log with each call."""
    numbers = iter(range(1_000_000))

    def copy() -> Written:
        root = tmp_path / str(next(numbers))
        shutil.copytree(written.root, root)
        return written._replace(root=root)

    yield copy


def change(log: Written, position: int, alter: Callable[[bytes], bytes]) -> None:
    """Replace the rest of the file that has ``position`` by what ``alter`` makes of it."""
    path = log.root / "data" / f"{position - position % FILE_SIZE:020d}"
    content = path.read_bytes()
    at = position % FILE_SIZE
    path.write_bytes(content[:at] + alter(content[at:]))
    assert path.stat().st_size == FILE_SIZE


def contents(log: Written) -> list[bytes]:
    return [path.read_bytes() for path in sorted((log.root / "data").iterdir())]


def flipped(rest: bytes) -> bytes:
    return bytes([rest[0] ^ 0x10]) + rest[1:]


def negated(rest: bytes) -> bytes:
    """The first bit of a big-endian number is its sign."""
    return bytes([rest[0] ^ 0x80]) + rest[1:]


def zeroed(rest: bytes) -> bytes:
    return bytes(len(rest))


def borders(log: Written, number: int) -> list[int]:
    """Where each part of record ``number`` begins, its last byte, and its middle."""
    begin, end = log.starts[number], log.starts[number] + size_of(log, number)
    record_at = begin + (48 if log.entries else 0)
    header = [begin + at for at in (0, 4, 8, 16, 24, 32, 36, 40, 44)] if log.entries else []
    message = [record_at + at for at in (0, 4, 8, 28, 84, 88)]
    return [*header, *message, (begin + end) // 2]


def size_of(log: Written, number: int) -> int:
    if number + 1 < len(log.starts):
        following = log.starts[number + 1]
        if following % FILE_SIZE:
            return following - log.starts[number]
    return log.ends[number].position - log.starts[number]


def files_after(log: Written, number: int) -> int:
    """Bytes that stand behind record ``number``, from its beginning on."""
    return log.ends[-1].position - log.starts[number]


@pytest.mark.long(but=16)
@pytest.mark.parametrize("alter", [flipped, negated, zeroed], ids=["flipped", "negated", "cut"])
@pytest.mark.parametrize("number", BEFORE)
def test_before_the_durable_end_it_is_damage(
    copies: Callable[[], Written], number: int, alter: Callable[[bytes], bytes]
) -> None:
    for position in borders(copies(), number):
        log = copies()
        end = log.checkpoint.end
        if not log.entries and position < end.position - end.position % FILE_SIZE:
            continue  # only a scan from a file's beginning knows where records begin
        change(log, position, alter)
        before = contents(log)
        damages: list[LogDamage] = []

        with pytest.raises(CorruptLogError, match="damaged before its durable end") as refused:
            recover(log.root, entries=log.entries, checkpoint=log.checkpoint)
        left = contents(log)
        found = recover(log.root, entries=log.entries, checkpoint=log.checkpoint, damages=damages)

        (damage,) = damages
        kept = log.ends[number - 1].position if number else 0
        assert found.verdict is Verdict.DAMAGED
        assert damage.position in (kept, log.starts[number])
        assert refused.value.details["position"] == damage.position
        assert left == before
        if log.entries:
            assert found.end.index_ == number - 1
            assert damage.last >= (end.term, end.index_)
            if alter is not zeroed:
                # Others may have been told of all that follows the checkpoint.
                assert damage.last == (log.ends[-1].term, log.ends[-1].index_)
        found.data.close()


@pytest.mark.parametrize("alter", [flipped, zeroed], ids=["flipped", "cut"])
@pytest.mark.parametrize("number", BEHIND)
def test_behind_the_durable_end_it_is_a_torn_tail(
    copies: Callable[[], Written], number: int, alter: Callable[[bytes], bytes]
) -> None:
    for position in borders(copies(), number):
        log = copies()
        change(log, position, alter)

        found = recover(log.root, entries=log.entries, checkpoint=log.checkpoint)

        assert found.verdict in (Verdict.TORN_TAIL, Verdict.WHOLE)
        assert found.believed
        # In a plain log nothing vouches for the first bytes of some fields.
        assert found.end in (log.ends[number - 1], log.ends[-1]) or (
            found.end.position == log.starts[number]
        )
        if log.entries:
            assert found.end.index_ == number - 1
        found.data.close()


def test_more_than_a_file_behind_it_is_damage_without_any_checkpoint(
    copies: Callable[[], Written],
) -> None:
    log = copies()
    number = next(n for n in range(1, 40) if files_after(log, n + 1) <= FILE_SIZE) - 1
    change(log, log.starts[number], zeroed_head)
    damages: list[LogDamage] = []

    found = recover(log.root, entries=log.entries, damages=damages, certain_before_ms=0)

    assert found.verdict is Verdict.DAMAGED
    assert not found.believed
    if log.entries:
        # What its index still names may have been promised to others.
        assert damages[0].last[1] >= number - 1


def zeroed_head(rest: bytes) -> bytes:
    return bytes(4) + rest[4:]


def test_a_checkpoint_of_another_log_is_not_believed_and_more_is_scanned(
    copies: Callable[[], Written],
) -> None:
    log = copies()
    if not log.entries:
        pytest.skip("nothing in a plain log says whose it is")
    end = log.checkpoint.end
    lies = LogCheckpoint(
        LogEnd(end.position, Index(end.index_ - 1), Term(end.term - 1), 77), FILE_SIZE
    )

    found = recover(log.root, entries=log.entries, checkpoint=lies)

    assert (found.end, found.verdict, found.believed) == (log.ends[-1], Verdict.WHOLE, False)


def test_files_that_are_gone_before_the_durable_end_are_damage(
    copies: Callable[[], Written],
) -> None:
    log = copies()
    last = LogCheckpoint(log.ends[-1], FILE_SIZE)
    sorted((log.root / "data").iterdir())[-1].unlink()
    damages: list[LogDamage] = []

    found = recover(log.root, entries=log.entries, checkpoint=last, damages=damages)

    assert found.verdict is Verdict.DAMAGED
    assert damages[0].last_index == log.ends[-1].index_


def test_index_items_that_are_gone_are_no_damage_of_the_log(copies: Callable[[], Written]) -> None:
    log = copies()
    if not log.entries:
        pytest.skip("no index")
    (path,) = (log.root / "index").iterdir()
    before = path.read_bytes()
    path.write_bytes(before[:64] + bytes(len(before) - 64))

    found = recover(log.root, entries=True, checkpoint=log.checkpoint)

    assert (found.end, found.verdict) == (log.ends[-1], Verdict.WHOLE)
    assert path.read_bytes() == before


def test_a_marked_damage_is_looked_at_again_whatever_the_checkpoint_covers(
    copies: Callable[[], Written],
) -> None:
    log = copies()
    if not log.entries:
        pytest.skip("a plain log has no marks")
    end = log.ends[-1]
    number = 2
    mark = LogDamage(Position(log.starts[number]), "", "", end.position, end.index_, end.term)
    last = LogCheckpoint(end, FILE_SIZE)
    healed = recover(log.root, entries=True, checkpoint=last, known=mark)
    change(log, log.starts[number] + 60, flipped)
    damages: list[LogDamage] = []
    found = recover(log.root, entries=True, checkpoint=last, known=mark, damages=damages)

    assert (healed.end, healed.verdict) == (end, Verdict.WHOLE)
    assert found.end == log.ends[number - 1]
    assert damages[0].merged(mark).last == (end.term, end.index_)


def test_a_second_recovery_after_a_crash_before_the_cut_says_the_same(
    copies: Callable[[], Written],
) -> None:
    log = copies()
    position = log.starts[DURABLE - 1] + 8
    change(log, position, flipped)
    damages: list[LogDamage] = []

    def stop(damage: LogDamage) -> None:
        damages.append(damage)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        recover_log(
            log.root / "data",
            log.root / "index" if log.entries else None,
            file_size=FILE_SIZE,
            checkpoint=log.checkpoint,
            progress=lambda _done, _total: None,
            on_damage=stop,
        )
    recover(log.root, entries=log.entries, checkpoint=log.checkpoint, damages=damages)
    after_cut = recover(log.root, entries=log.entries, checkpoint=log.checkpoint, damages=damages)

    first, second, third = damages
    assert (first.position, first.last) == (second.position, second.last)
    assert (third.position, third.merged(first).last) == (first.position, first.last)
    assert after_cut.end.position == log.starts[DURABLE - 1] or (
        after_cut.end == log.ends[DURABLE - 2]
    )


def test_what_dledger_calls_committed_is_durable_in_a_store_of_rocketmq(
    copies: Callable[[], Written],
) -> None:
    log = copies()
    if not log.entries:
        pytest.skip("no DLedger")
    change(log, log.starts[36], zeroed)

    kept = recover(copies().root, entries=True, foreign=ForeignEnd(Index(39), 0))

    assert kept.verdict is Verdict.WHOLE
    with pytest.raises(CorruptLogError, match="durable end"):
        recover(log.root, entries=True, foreign=ForeignEnd(Index(36), 0))
    assert recover(log.root, entries=True, foreign=ForeignEnd(Index(35), 0)).end == log.ends[35]


def test_a_plain_log_of_rocketmq_lacks_what_is_older_than_its_checkpoint_says(
    copies: Callable[[], Written],
) -> None:
    log = copies()
    if log.entries:
        pytest.skip("not a plain log")
    last = len(log.starts) - 1
    change(log, log.starts[last], zeroed)

    with pytest.raises(CorruptLogError, match="durable end"):
        recover(log.root, entries=False, foreign=ForeignEnd(Index(-1), STORED_AT + last))
    found = recover(log.root, entries=False, foreign=ForeignEnd(Index(-1), STORED_AT + last - 1))
    assert found.end.position == log.starts[last]


def test_each_start_verifies_the_last_entry_before_the_checkpoint(
    copies: Callable[[], Written], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = copies()
    if not log.entries:
        pytest.skip("borders are not known in a plain log")
    monkeypatch.setattr("ledgermq.store.recovery.log_scan.LOOK_BACK", 1)
    change(log, log.starts[DURABLE - 1] + 60, flipped)

    with pytest.raises(CorruptLogError, match="durable end"):
        recover(log.root, entries=True, checkpoint=log.checkpoint)


@pytest.mark.parametrize("torn", [b"", b"\1" * 70], ids=["nothing", "a torn entry"])
@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_a_log_does_not_end_behind_a_blank_that_no_entry_follows(
    tmp_path: Path, torn: bytes, has_checkpoint: bool
) -> None:
    log = write_log(tmp_path, entries=True)
    found = recover(log.root, entries=True)
    assert found.index is not None
    writer = LogWriter(found.data, found.index, end=found.end, store_host=HOST)
    # A leader that was about to write into the next file when the power failed.
    writer._roll()
    closed = writer.end
    writer._data.append(torn)
    writer.close()
    # As versions have noted it that ended a log there.
    known = LogCheckpoint(closed, FILE_SIZE) if has_checkpoint else None
    again = recover(log.root, entries=True, checkpoint=known)
    assert again.index is not None
    writer = LogWriter(again.data, again.index, end=again.end, store_host=HOST)
    payload, sizes = frame_of([record(b"another leader's", number=99, header_size=48)])
    (span,) = writer.put(
        payload, sizes, [StampedRun(1, QueueOffset(99))], term=Term(9), store_timestamp=STORED_AT
    )
    writer.publish()
    writer.close()

    assert closed.position % FILE_SIZE == 0 < closed.position - found.end.position
    assert (again.end, again.damage) == (found.end, None)
    assert again.verdict is (Verdict.TORN_TAIL if torn else Verdict.WHOLE)
    assert span.physical_offset == found.end.position + 48
    assert recover(log.root, entries=True).end == writer.end


def test_records_do_not_overlap_in_these_tests(written: Written) -> None:
    assert all(first < second for first, second in pairwise(written.starts))
