"""Every byte of queues and index that a disk turns over is found against the log, and put right."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ledgermq.dispatcher.derived_scrub import DerivedScrub
from ledgermq.formats.index_file import IndexLayout, get_header
from ledgermq.formats.queue_unit import UNIT_SIZE
from ledgermq.model.config.settings import NodeSection, ScrubSection, Settings, StoreSection
from ledgermq.model.ids import Position
from ledgermq.store.log_reader import LogReader
from ledgermq.store.queues.dispatch_build import DispatchBuilder
from ledgermq.store.store_directory import open_directory
from tests.small_store import SIZES, write_store

STEP = int(os.environ.get("LEDGERMQ_FLIP_STEP", "13"))
LAYOUT = IndexLayout(slots=SIZES["max_hash_slot_num"], items=SIZES["max_index_num"])
FAST = ScrubSection(rate_bytes_per_s=1024 * 1024 * 1024, every_s=100_000)
PASS_NS = 100_001_000_000_000
TURN_NS = 1_000_000_000


class Running:
    """A dispatcher's files in use, and the scrub beside it."""

    def __init__(self, root: Path) -> None:
        directory = open_directory(root)
        with closing(LogReader(directory)) as reader:
            self.first, self.end = reader.first, Position(reader.end)
        section = StoreSection(path_root_dir=root, log=directory.log, **SIZES)
        settings = Settings(node=NodeSection(self_id="n0"), store=section, scrub=FAST)
        self.damaged: list[int] = []
        self.builder = DispatchBuilder.open(
            section, log_start=self.first, log_end=self.end, published=self.end
        )
        self.scrub = DerivedScrub(settings, 0, self.damaged.append)
        self._now_ns = 0

    def turn(self) -> None:
        """One turn; a step that it began is waited for."""
        self._now_ns += TURN_NS
        self.scrub.turn(self.builder, self.end, self._now_ns)
        if self.scrub._job is not None:
            self.scrub._job.exception()

    def begin(self) -> None:
        """Begin a reading."""
        self._now_ns += PASS_NS
        self.turn()

    def one_pass(self) -> None:
        """From the beginning of a reading to its end, and to the end of what came of it."""
        self.begin()
        while self.scrub._job is not None or self.builder.keys_from is not None:
            self.turn()

    def close(self) -> None:
        self.scrub.close()
        self.builder.close()


@pytest.fixture(params=[True, False], ids=["dledger", "commitlog"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    root = tmp_path / "store"
    write_store(root, entries=request.param)
    return root


def derived(root: Path) -> list[bytes]:
    """Queues by name, index files by their order: a new one has a new name."""
    queues = [path.read_bytes() for path in sorted((root / "consumequeue").glob("*/*/*"))]
    return [*queues, *(path.read_bytes() for path in sorted((root / "index").iterdir()))]


def flip(path: Path, at: int) -> None:
    fd = os.open(path, os.O_RDWR)
    try:
        os.pwrite(fd, bytes([os.pread(fd, 1, at)[0] ^ 0xFF]), at)
    finally:
        os.close(fd)


def places(root: Path) -> Iterator[tuple[str, int]]:
    """All bytes that a unit or a key has put."""
    for path in sorted((root / "consumequeue").glob("*/*/*")):
        used = len(path.read_bytes().rstrip(b"\0"))
        yield from ((str(path.relative_to(root)), at) for at in range(-(-used // UNIT_SIZE) * 20))
    for path in sorted((root / "index").iterdir()):
        header = get_header(memoryview(path.read_bytes()), LAYOUT)
        for at in range(LAYOUT.item_at(header.index_count)):
            if not LAYOUT.item_at(0) <= at < LAYOUT.item_at(1):
                yield str(path.relative_to(root)), at


@pytest.mark.long(but=1)
def test_every_byte_that_was_turned_over_is_put_right(store: Path, tmp_path: Path) -> None:
    wanted = derived(store)
    all_places = list(places(store))
    checked = 0
    for number in range(0, len(all_places), STEP):
        name, at = all_places[number]
        root = tmp_path / "spoilt"
        shutil.copytree(store, root)
        with closing(Running(root)) as running:
            flip(root / name, at)
            running.one_pass()
            counts = running.scrub.take_counts()

            assert derived(root) == wanted, (name, at)
            assert (counts.units > 0) != (counts.index_files > 0), (name, at)
            assert not (root / "ledgermq" / "index-incomplete").exists()
        shutil.rmtree(root)
        checked += 1

    assert checked > 20


def test_keys_that_are_there_twice_are_so_once_again(tmp_path: Path) -> None:
    root = tmp_path / "store"
    write_store(root, messages=9)
    wanted = derived(root)
    files = sorted((root / "index").iterdir())
    for number, path in enumerate(files, 1):
        shutil.copyfile(path, path.with_name(f"{int(files[-1].name) + number:017d}"))
    with closing(Running(root)) as running:
        # The last file looks full: what follows it is compared when the first one is dropped.
        for _ in range(2):
            running.one_pass()

    assert derived(root) == wanted


def test_what_is_whole_is_left_alone(store: Path) -> None:
    times = {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()}
    with closing(Running(store)) as running:
        for _ in range(2):
            running.one_pass()
        counts = running.scrub.take_counts()
    changed = [p for p, time in times.items() if p.exists() and p.stat().st_mtime_ns != time]

    assert (counts.units, counts.index_files) == (0, 0)
    assert counts.bytes >= 2 * (running.end - running.first) - 1_000
    assert {path.parent.name for path in changed} <= {"store", "ledgermq"}


def test_a_death_while_keys_are_put_again_loses_none(store: Path) -> None:
    wanted = derived(store)
    first = sorted((store / "index").iterdir())[0]
    with closing(Running(store)) as running:
        flip(first, LAYOUT.item_at(1))
        running.begin()
        while running.builder.keys_from is None:
            running.turn()
    assert (store / "ledgermq" / "index-incomplete").exists()
    reader = LogReader(open_directory(store))
    with closing(reader):
        section = StoreSection(path_root_dir=store, log=open_directory(store).log, **SIZES)
        builder = DispatchBuilder.open(
            section, log_start=reader.first, log_end=reader.end, published=None
        )
        while builder.position < reader.end:
            span = reader.span(builder.position)
            end = Position(min(reader.end, span.start + len(span.view)))
            builder.build(span.view, span.start, end, header_size=span.header_size)
        builder.flush()
        builder.close()

    assert derived(store) == wanted
    assert not (store / "ledgermq" / "index-incomplete").exists()


def test_a_damaged_record_is_told_and_its_unit_not_judged(store: Path) -> None:
    wanted = derived(store)
    with closing(Running(store)) as running:
        logs = [path for path in store.rglob("0*") if path.parent.name in ("data", "commitlog")]
        content = sorted(logs)[0].read_bytes()
        flip(sorted(logs)[0], content.index(b"body of message 1"))
        running.one_pass()

        assert len(running.damaged) == 1
    assert derived(store) == wanted
