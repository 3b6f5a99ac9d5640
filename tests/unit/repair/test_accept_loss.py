"""An operator lets go of what a damaged log lost; nobody else does."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.cli.main import main
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import Index, Position, Term
from ledgermq.repair.log_repair import accept_loss, find_loss
from ledgermq.store.recovery.log_checkpoint import LogCheckpoint, encode, read
from ledgermq.store.recovery.log_damage import LogDamage, damage_path, mark_damage, read_damage
from ledgermq.store.recovery.recovery import recover_log
from ledgermq.store.store_directory import open_directory
from tests.unit.store.test_recovery import DURABLE, FILE_SIZE, Written, flipped, write_log


@pytest.fixture(params=[True, False], ids=["dledger", "commitlog"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Written:
    """A whole log of some files in a store directory, with its checkpoint."""
    log = write_log(tmp_path / "log", entries=request.param)
    root = tmp_path / "store"
    place = root / "dledger-n0" if request.param else root / "commitlog"
    place.parent.mkdir(parents=True)
    (log.root if request.param else log.root / "data").rename(place)
    (root / "ledgermq").mkdir()
    (root / "ledgermq" / "log-checkpoint").write_bytes(encode(log.checkpoint))
    return log._replace(root=root)


def data_of(log: Written) -> Path:
    return log.root / "dledger-n0" / "data" if log.entries else log.root / "commitlog"


def spoil(log: Written, number: int) -> None:
    position = log.starts[number]
    path = data_of(log) / f"{position - position % FILE_SIZE:020d}"
    content, at = path.read_bytes(), position % FILE_SIZE
    path.write_bytes(content[:at] + flipped(content[at:]))


def opened(log: Written) -> LogCheckpoint:
    """The log as a node that is alone opens it; its end."""
    found = recover_log(
        data_of(log),
        log.root / "dledger-n0" / "index" if log.entries else None,
        file_size=FILE_SIZE,
        checkpoint=read(log.root / "ledgermq" / "log-checkpoint"),
        progress=lambda _done, _total: None,
    )
    return LogCheckpoint(found.end, found.data.file_size)


def test_a_whole_log_has_nothing_to_let_go_of(written: Written) -> None:
    directory = open_directory(written.root)

    assert find_loss(directory) is None
    assert accept_loss(directory) is None
    assert opened(written).end == written.ends[-1]


def test_a_node_that_is_alone_opens_its_log_again_without_what_was_lost(written: Written) -> None:
    number = DURABLE - 1
    spoil(written, number)
    with pytest.raises(CorruptLogError, match="accept-loss"):
        opened(written)
    before = [path.read_bytes() for path in sorted(data_of(written).iterdir())]

    loss = find_loss(open_directory(written.root))
    untouched = [path.read_bytes() for path in sorted(data_of(written).iterdir())]
    accepted = accept_loss(open_directory(written.root))
    end = opened(written).end

    assert loss is not None and accepted is not None
    assert untouched == before
    assert loss.damage.position == accepted.damage.position == end.position
    assert accepted.end == end.position <= written.starts[number]
    if written.entries:
        assert (accepted.last, accepted.entries) == (number - 1, 40 - number)


def test_a_member_forgets_what_it_once_had(tmp_path: Path) -> None:
    log = write_log(tmp_path / "dledger-n0", entries=True)
    end = log.ends[-1]
    mark = LogDamage(Position(0), "f", "page", end.position, Index(99), Term(7))
    (tmp_path / "ledgermq").mkdir()
    mark_damage(damage_path(tmp_path), mark)

    loss = find_loss(open_directory(tmp_path))
    status = main(["store", "accept-loss", str(tmp_path)])
    kept = read_damage(damage_path(tmp_path))
    done = main(["store", "accept-loss", str(tmp_path), "--yes"])

    assert loss is not None and (loss.last, loss.entries) == (end.index_, 99 - end.index_)
    assert (status, done) == (1, 0)
    assert kept == mark
    assert read_damage(damage_path(tmp_path)) is None


def test_a_mark_that_is_not_whole_stops_a_node_until_the_operator_lets_go(tmp_path: Path) -> None:
    write_log(tmp_path / "dledger-n0", entries=True)
    (tmp_path / "ledgermq").mkdir()
    damage_path(tmp_path).write_bytes(b"{}\n")

    with pytest.raises(CorruptLogError, match="checksum"):
        read_damage(damage_path(tmp_path))
    accept_loss(open_directory(tmp_path))

    assert read_damage(damage_path(tmp_path)) is None


def test_marks_merge_to_the_first_place_and_the_last_entry(tmp_path: Path) -> None:
    path = damage_path(tmp_path)
    path.parent.mkdir()
    first = LogDamage(Position(500), "b", "size", Position(900), Index(20), Term(3))
    second = LogDamage(Position(100), "a", "end", Position(800), Index(30), Term(2))

    mark_damage(path, first)
    merged = mark_damage(path, second)

    assert merged == LogDamage(Position(100), "a", "end", Position(900), Index(20), Term(3))
    assert read_damage(path) == merged
    assert not merged.is_mended_by(3, 19)
    assert merged.is_mended_by(3, 20)
    assert merged.is_mended_by(4, 0)
