"""Damage of a log in use: every changed byte is found, bounded, and told from what is whole."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from ledgermq.formats.arrays import ENTRY_ITEM
from ledgermq.model.config.settings import ScrubSection
from ledgermq.model.errors import ProtocolError, StorageError
from ledgermq.model.ids import Index, NodeId, Position, Term
from ledgermq.raft_node.repair.repair_source import repair_answer
from ledgermq.raft_node.repair.scrub import ANSWER_NS, RETRY_NS, UNHEARD_RETRY_NS, Scrub
from ledgermq.repair.log_repair import Repair, accept_entries
from ledgermq.repair.log_scrub import RUN_ENTRIES_MAX, Damage, Family, LogScrub, ScrubEnd
from ledgermq.store.files.append_files import overwrite
from ledgermq.store.files.file_names import file_name
from ledgermq.store.log.entry_check import EntryPoint
from ledgermq.store.log.entry_files import LogPlaces
from ledgermq.store.log.log_writer import LogEnd
from ledgermq.wire.repair_frames import decode_repair_frame
from tests.simulator.machine.process import InlineExecutor
from tests.unit.store.test_log_writer import FILE_SIZE, Log

ENTRIES = 260
INDEX_FILE_SIZE = 16_384
STEP = 16_384


class Files(NamedTuple):
    """The files of a log, and where it ends."""

    root: Path
    end: LogEnd

    def files(self) -> list[Path]:
        return sorted((self.root / "data").iterdir())


class Scrubbed:
    """A log of five files, and a twin that nobody spoils."""

    def __init__(self, spoilt: Files, twin: Files) -> None:
        self.log = spoilt
        self.twin = twin
        self.scrub = _scrub_of(self.log)
        self.healthy = _scrub_of(self.twin)
        self.end = ScrubEnd(twin.end.position, twin.end.index_)
        raw = (twin.root / "index" / file_name(0)).read_bytes()
        self.items = np.frombuffer(raw[: ENTRIES * ENTRY_ITEM.itemsize], ENTRY_ITEM)

    def spoil(self, index: int, at: int, size: int = 1) -> None:
        """Turn all bits of bytes of an entry."""
        self.spoil_at("data", int(self.items["position"][index]) + at, size)

    def spoil_at(self, folder: str, position: int, size: int = 1) -> None:
        file_size = FILE_SIZE if folder == "data" else INDEX_FILE_SIZE
        path = self.log.root / folder / file_name(position - position % file_size)
        with path.open("r+b") as file:
            file.seek(position % file_size)
            found = file.read(size)
            file.seek(position % file_size)
            file.write(bytes(byte ^ 0xFF for byte in found))

    def find(self, *, step: int = STEP) -> list[Damage]:
        """All that one pass finds."""
        found = []
        point = self.scrub.begin(self.end)
        while point is not None:
            result = self.scrub.step(point, self.end, step)
            if result.damage is not None:
                found.append(result.damage)
            assert result.point is None or result.point != point
            point = result.point
        return found

    def accept(self, damage: Damage, data: bytes) -> Repair:
        return accept_entries(damage, memoryview(data), file_size=FILE_SIZE, term_of=self.term_of)

    def term_of(self, index: Index) -> Term | None:
        return Term(int(self.items["term"][index])) if index < ENTRIES else None

    def repair(self, damage: Damage, *, size_max: int = 1 << 20) -> None:
        """As a group does, with the twin for the other member."""
        position, data = damage.position, damage.patch
        if not data:
            given = self.healthy.whole_entries(damage.first, damage.last, size_max=size_max)
            assert given is not None
            repair = self.accept(damage, given)
            assert not repair.ends_damage or self.scrub.joins(damage, repair.chain)
            position, data = repair.position, bytes(repair.data)
        family = damage.family
        folder = self.log.root / ("data" if family is Family.DATA else "index")
        overwrite(folder, FILE_SIZE if family is Family.DATA else INDEX_FILE_SIZE, position, data)

    def is_equal(self) -> bool:
        """Whether the spoilt log has the twin's bytes again."""
        same = [
            ours.read_bytes() == theirs.read_bytes()
            for ours, theirs in zip(self.log.files(), self.twin.files(), strict=True)
        ]
        raw = [(log.root / "index" / file_name(0)).read_bytes() for log in (self.log, self.twin)]
        return all(same) and raw[0] == raw[1]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """The log that all tests begin with; nobody changes this one."""
    root = tmp_path_factory.mktemp("log")
    (root / "index").mkdir()
    with (root / "index" / file_name(0)).open("wb") as file:
        # The size of index files is that of those there are.
        file.truncate(INDEX_FILE_SIZE)
    log = Log(root)
    for number in range(ENTRIES // 10):
        log.put([bytes([number]) * 1_000] * 10, term=1 + number // 6)
    log.writer.publish()
    log.writer.close()
    return Files(root, log.writer.end)


def _scrub_of(log: Files) -> LogScrub:
    return LogScrub(LogPlaces(log.root / "data", log.root / "index", FILE_SIZE, INDEX_FILE_SIZE))


@pytest.fixture
def scrubbed(written: Files, tmp_path: Path) -> Scrubbed:
    copies = []
    for name in ("spoilt", "twin"):
        shutil.copytree(written.root, tmp_path / name)
        copies.append(Files(tmp_path / name, written.end))
    return Scrubbed(*copies)


@pytest.mark.parametrize("step", [1, 5_000, STEP, 1 << 20])
def test_a_whole_log_is_read_to_its_end_and_has_no_damage(scrubbed: Scrubbed, step: int) -> None:
    assert len(scrubbed.log.files()) > 4
    assert scrubbed.find(step=step) == []


@pytest.mark.parametrize("at", [0, 4, 8, 16, 24, 32, 36, 40, 44, 48, 60, 200, 1_000])
@pytest.mark.parametrize("place", ["first", "middle", "first of a file", "last of a file", "last"])
def test_a_changed_byte_of_an_entry_is_found_and_repaired(
    scrubbed: Scrubbed, place: str, at: int
) -> None:
    positions = scrubbed.items["position"].astype(np.int64)
    of_file = int(np.flatnonzero(positions % FILE_SIZE == 0)[2])
    index = {
        "first": 0,
        "middle": 77,
        "first of a file": of_file,
        "last of a file": of_file - 1,
        "last": ENTRIES - 1,
    }[place]
    scrubbed.spoil(index, at)
    (damage,) = scrubbed.find()
    scrubbed.repair(damage)

    assert (damage.first, damage.last, damage.family) == (index, index, Family.DATA)
    assert scrubbed.find() == []
    assert scrubbed.is_equal()


def test_damaged_entries_in_a_row_are_one_damage(scrubbed: Scrubbed) -> None:
    for index in range(20, 31):
        scrubbed.spoil(index, 4)
    scrubbed.spoil(35, 50)
    found = scrubbed.find()

    assert [(one.first, one.last) for one in found] == [(20, 30), (35, 35)]
    assert found[0].end == scrubbed.items["position"][31]


def test_a_file_that_is_zeros_is_repaired_piece_by_piece(scrubbed: Scrubbed) -> None:
    path = scrubbed.log.files()[2]
    path.write_bytes(bytes(FILE_SIZE))
    pieces = 0
    while found := scrubbed.find():
        scrubbed.repair(found[0], size_max=10_000)
        pieces += 1
        assert pieces < 100

    assert pieces > 5
    assert scrubbed.is_equal()


def test_damaged_entries_at_both_sides_of_a_files_end_are_repaired(scrubbed: Scrubbed) -> None:
    positions = scrubbed.items["position"].astype(np.int64)
    first = int(np.flatnonzero(positions % FILE_SIZE == 0)[1])
    for index in range(first - 2, first + 2):
        scrubbed.spoil(index, 0, 48)
    scrubbed.spoil_at("data", int(positions[first - 1] + scrubbed.items["size"][first - 1]), 8)
    rounds = 0
    while found := scrubbed.find():
        for damage in found[:1]:
            scrubbed.repair(damage)
        rounds += 1
        assert rounds < 10

    assert scrubbed.is_equal()


def test_a_blank_is_made_again(scrubbed: Scrubbed) -> None:
    positions = scrubbed.items["position"].astype(np.int64)
    last = int(np.flatnonzero(positions % FILE_SIZE == 0)[1]) - 1
    scrubbed.spoil_at("data", int(positions[last] + scrubbed.items["size"][last]) + 5)
    (damage,) = scrubbed.find()
    scrubbed.repair(damage)

    assert damage.patch
    assert scrubbed.is_equal()


@pytest.mark.parametrize("at", [0, 4, 11, 12, 16, 24, 31])
def test_an_index_item_is_made_again_from_its_entry(scrubbed: Scrubbed, at: int) -> None:
    scrubbed.spoil_at("index", 70 * 32 + at)
    scrubbed.spoil_at("index", 73 * 32 + at)
    (damage,) = scrubbed.find(step=1 << 20)
    scrubbed.repair(damage)

    assert (damage.family, damage.first, damage.last) == (Family.INDEX, 70, 73)
    assert scrubbed.find() == []
    assert scrubbed.is_equal()


def test_an_entry_whose_index_item_is_damaged_too_is_repaired(scrubbed: Scrubbed) -> None:
    scrubbed.spoil_at("index", 70 * 32, 96)
    scrubbed.spoil(70, 0, 48)
    rounds = 0
    while found := scrubbed.find():
        scrubbed.repair(found[0])
        rounds += 1
        assert rounds < 10

    assert scrubbed.is_equal()


@pytest.mark.parametrize("seed", range(20))
def test_random_damage_is_repaired_to_the_last_byte(scrubbed: Scrubbed, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(chance.randint(1, 12)):
        if chance.random() < 0.2:
            scrubbed.spoil_at("index", chance.randrange(ENTRIES * 32 - 64), chance.randint(1, 64))
        else:
            index = chance.randrange(ENTRIES)
            scrubbed.spoil(index, chance.randrange(1_000), chance.choice([1, 8, 100]))
    rounds = 0
    while found := scrubbed.find(step=chance.choice([1, 9_000, 1 << 20])):
        for damage in found[:1]:
            scrubbed.repair(damage)
        rounds += 1
        assert rounds < 100

    assert scrubbed.is_equal()


def test_a_reader_s_word_leads_to_the_damage(scrubbed: Scrubbed) -> None:
    scrubbed.spoil(120, 400)
    position = int(scrubbed.items["position"][120]) + 48
    by_position = scrubbed.scrub.look_at(position, scrubbed.end, is_position=True)
    by_index = scrubbed.scrub.look_at(120, scrubbed.end, is_position=False)

    assert [one.first for one in by_position] == [120]
    assert by_position == by_index
    assert scrubbed.scrub.look_at(10, scrubbed.end, is_position=False) == ()


def test_what_is_not_committed_is_not_looked_at(scrubbed: Scrubbed) -> None:
    scrubbed.spoil(ENTRIES - 1, 100)
    items = scrubbed.items
    scrubbed.end = ScrubEnd(Position(int(items["position"][-1])), Index(ENTRIES - 2))

    assert scrubbed.find() == []


def test_a_log_whose_first_files_were_deleted_is_read_from_where_it_begins(
    scrubbed: Scrubbed,
) -> None:
    for log in (scrubbed.log, scrubbed.twin):
        for path in log.files()[:2]:
            path.unlink()
    begin = scrubbed.scrub.begin(scrubbed.end)
    assert begin is not None
    scrubbed.spoil(begin.index, 300)
    (damage,) = scrubbed.find()
    # Of the first entry that there is nobody knows what it follows.
    scrubbed.repair(damage)

    assert begin.chain is None
    assert scrubbed.is_equal()


def test_a_file_that_is_deleted_meanwhile_is_told_as_gone(scrubbed: Scrubbed) -> None:
    point = scrubbed.scrub.begin(scrubbed.end)
    assert point is not None
    scrubbed.log.files()[0].unlink()

    with pytest.raises(StorageError) as refusal:
        scrubbed.scrub.step(point, scrubbed.end, STEP)
    assert refusal.value.errno == 2


def given_for(scrubbed: Scrubbed, first: int, last: int) -> bytes:
    data = scrubbed.healthy.whole_entries(Index(first), Index(last), size_max=1 << 20)
    assert data is not None
    return data


def test_entries_that_are_not_the_missing_ones_are_refused(scrubbed: Scrubbed) -> None:
    scrubbed.spoil(50, 300)
    scrubbed.spoil(51, 300)
    (damage,) = scrubbed.find()
    whole = given_for(scrubbed, 50, 51)
    bad = bytearray(whole)
    bad[500] ^= 1
    refused = [
        given_for(scrubbed, 49, 50),
        given_for(scrubbed, 51, 51),
        given_for(scrubbed, 50, 52),
        bytes(bad),
        whole[:-1],
        b"",
    ]

    for data in refused:
        with pytest.raises(ProtocolError):
            scrubbed.accept(damage, data)
    assert scrubbed.accept(damage, whole).ends_damage
    assert not scrubbed.accept(damage, given_for(scrubbed, 50, 50)).ends_damage


def test_entries_of_another_term_are_refused(scrubbed: Scrubbed) -> None:
    scrubbed.spoil(50, 300)
    (damage,) = scrubbed.find()
    data = memoryview(given_for(scrubbed, 50, 50))

    with pytest.raises(ProtocolError, match="another term"):
        accept_entries(damage, data, file_size=FILE_SIZE, term_of=lambda index: Term(9))


def test_entries_that_the_next_one_does_not_follow_are_noticed(scrubbed: Scrubbed) -> None:
    scrubbed.spoil(50, 300)
    (damage,) = scrubbed.find()
    repair = scrubbed.accept(damage, given_for(scrubbed, 50, 50))

    assert scrubbed.scrub.joins(damage, repair.chain)
    assert not scrubbed.scrub.joins(damage, repair.chain ^ 1)


def test_no_damaged_entry_is_given_to_others(scrubbed: Scrubbed) -> None:
    scrubbed.spoil(52, 300)
    given = scrubbed.scrub.whole_entries(Index(50), Index(55), size_max=1 << 20)

    assert given == given_for(scrubbed, 50, 51)
    assert scrubbed.scrub.whole_entries(Index(52), Index(55), size_max=1 << 20) is None


def test_a_damage_of_very_many_entries_ends_somewhere(scrubbed: Scrubbed) -> None:
    for index in range(1, ENTRIES):
        scrubbed.spoil(index, 0)
    found = scrubbed.find()

    assert (found[0].first, found[0].last) == (1, min(ENTRIES - 1, RUN_ENTRIES_MAX))


def test_the_place_before_an_entry_says_what_is_known_of_it(scrubbed: Scrubbed) -> None:
    scrubbed.spoil(30, 300)
    known = scrubbed.scrub.point_before(Index(20))
    unknown = scrubbed.scrub.point_before(Index(31))
    position = Position(int(scrubbed.items["position"][31]))

    assert known is not None
    assert known.chain is not None
    assert unknown == EntryPoint(position, Index(31), Term(0), None)
    assert replace(known, chain=None, term=Term(0)) == EntryPoint(
        Position(int(scrubbed.items["position"][20])), Index(20), Term(0), None
    )


def test_who_did_not_answer_is_asked_again_soon(scrubbed: Scrubbed, tmp_path: Path) -> None:
    now_ns, asked = 0, list[tuple[NodeId, bytes]]()

    def send(peer: NodeId, parts: Sequence[bytes]) -> bool:
        asked.append((peer, parts[0]))
        return True

    scrubbed.spoil(77, 60)
    scrub = Scrub(
        ScrubSection(rate_bytes_per_s=0),
        node=NodeId("n0"),
        executor=InlineExecutor(),
        send=send,
        write=lambda content, data: True,
        sources=lambda: [NodeId("n0"), NodeId("n1"), NodeId("n2")],
        term_of=scrubbed.term_of,
        report=tmp_path / "damage.json",
        now_ns=now_ns,
    )
    root = scrubbed.log.root
    scrub.open(LogPlaces(root / "data", root / "index", FILE_SIZE, INDEX_FILE_SIZE))

    def until_asked(count: int) -> None:
        nonlocal now_ns
        while len(asked) < count:
            now_ns += 100_000_000
            scrub.turn(now_ns, scrubbed.end)

    def refuse(number: int) -> None:
        """One that was asked has not got it."""
        peer, frame = asked[number]
        answer = repair_answer(decode_repair_frame(memoryview(frame)), None)
        scrub.take(peer, [memoryview(part) for part in answer], now_ns)

    scrub.suspect_entry(Index(77))
    until_asked(1)
    begun_ns = now_ns
    until_asked(2)
    refuse(1)
    assert now_ns - begun_ns >= ANSWER_NS
    until_asked(3)
    assert ANSWER_NS + UNHEARD_RETRY_NS <= now_ns - begun_ns < RETRY_NS

    refuse(2)
    until_asked(4)
    refuse(3)
    begun_ns = now_ns
    until_asked(5)
    assert now_ns - begun_ns >= RETRY_NS
    assert [peer for peer, _ in asked] == ["n1", "n2", "n1", "n2", "n1"]
    scrub.close()
