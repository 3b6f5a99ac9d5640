"""Term and vote count only once a power failure cannot take them back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from ledgermq.ipc.loop import StopFlag
from ledgermq.model.errors import CorruptLogError, DiskFullError
from ledgermq.model.ids import NodeId, Term
from ledgermq.raft.messages import HardState
from ledgermq.raft.term_slots import encode_slot
from ledgermq.raft_node.term_file import TermFile, when_there_is_space
from ledgermq.store.files.disk_space import storage_error
from ledgermq.store.files.disk_sync import watched
from ledgermq.store.files.properties_file import CurrentTerm, decode_current_term
from tests.simulator.machine.disk import Disk, Disks

OLD = HardState(Term(5), NodeId("n0"))
NEW = HardState(Term(6), NodeId("n1"))
NEXT = HardState(Term(7), None)


@pytest.fixture(params=range(40))
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    """One that has kept two states."""
    root = tmp_path / "disk"
    root.mkdir()
    made = Disk(root, Random(request.param))
    made.format()
    disks = Disks()
    disks.disks.append(made)
    with watched(disks):
        file = TermFile(root / "term", root / "currterm")
        file.persist(HardState(Term(4), None))
        file.persist(OLD)
        file.close()
        yield made


def state_at(disk: Disk) -> HardState:
    file = TermFile(disk.root / "term", disk.root / "currterm")
    file.close()
    return file.state


def killed_before_its_sync(disk: Disk, sequence: int, state: HardState) -> None:
    offset, slot = encode_slot(sequence, state)
    fd = os.open(disk.root / "term", os.O_RDWR)
    os.pwrite(fd, slot, offset)
    os.close(fd)


def test_a_vote_that_was_not_synced_is_durable_before_it_counts(disk: Disk) -> None:
    """Who is asked again gives it without writing: after a power failure there would be two."""
    killed_before_its_sync(disk, 3, NEW)

    found = state_at(disk)
    disk.power_failure()

    assert found == NEW
    assert state_at(disk) == NEW


def test_what_is_written_behind_it_cannot_tear_both(disk: Disk) -> None:
    killed_before_its_sync(disk, 3, NEW)
    state_at(disk)

    killed_before_its_sync(disk, 4, NEXT)
    disk.power_failure()

    assert state_at(disk) in (NEW, NEXT)


@pytest.mark.parametrize(
    ("mirrored", "counts"),
    [("6\nvoteLeader=n2", True), ("4\nvoteLeader=n2", False), ("5\nvoteLeader=n2", False)],
)
def test_another_broker_s_newer_term_is_durable_before_it_counts(
    disk: Disk, mirrored: str, counts: bool
) -> None:
    (disk.root / "currterm").write_text(f"currTerm={mirrored}\n")

    found = state_at(disk)
    disk.power_failure()

    assert found == (HardState(Term(6), NodeId("n2")) if counts else OLD)
    assert state_at(disk) == found


def test_a_vote_is_kept_before_the_log_is_begun(tmp_path: Path) -> None:
    """Another member may ask for it before this one's writer has made the log's folder."""
    places = (tmp_path / "ledgermq" / "term", tmp_path / "dledger-n2" / "currterm")
    file = TermFile(*places)
    file.persist(NEXT)
    file.close()

    file = TermFile(*places)
    file.close()

    assert file.state == NEXT
    assert decode_current_term(places[1].read_bytes()) == CurrentTerm(NEXT.term, NEXT.vote)


def test_another_broker_s_vote_counts_in_a_term_without_one(tmp_path: Path) -> None:
    """A member that asked for that term before would get a second vote."""
    file = TermFile(tmp_path / "term", tmp_path / "currterm")
    file.persist(NEXT)
    file.close()
    (tmp_path / "currterm").write_text("currTerm=7\nvoteLeader=n2\n")

    file = TermFile(tmp_path / "term", tmp_path / "currterm")
    file.close()

    assert file.state == HardState(Term(7), NodeId("n2"))


def test_a_vote_that_fits_no_member_is_refused(tmp_path: Path) -> None:
    (tmp_path / "currterm").write_text(f"currTerm=7\nvoteLeader={'n' * 33}\n")

    with pytest.raises(CorruptLogError, match="nobody who can be a member"):
        TermFile(tmp_path / "term", tmp_path / "currterm")


def kept_aside(root: Path) -> list[bytes]:
    folder = root / "set-aside"
    return [path.read_bytes() for path in folder.iterdir()] if folder.is_dir() else []


CUT = {"empty": b"", "cut": b"voteLeader=n1\ncurrTer", "no number": b"currTerm=six\n"}


@pytest.mark.parametrize("content", CUT.values(), ids=CUT)
def test_a_member_whose_vote_cannot_be_read_says_what_to_do(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "currterm"
    path.write_bytes(content)

    with pytest.raises(CorruptLogError, match="write a currTerm into the file that is higher"):
        TermFile(tmp_path / "term", path)

    assert path.read_bytes() == content
    path.write_text("currTerm=8\n")
    file = TermFile(tmp_path / "term", path)
    file.close()
    assert file.state == HardState(Term(8), None)


@pytest.mark.parametrize("known", [None, OLD])
@pytest.mark.parametrize("content", CUT.values(), ids=CUT)
def test_a_node_that_is_alone_goes_on_where_its_vote_cannot_be_read(
    tmp_path: Path, content: bytes, known: HardState | None
) -> None:
    path = tmp_path / "currterm"
    if known is not None:
        file = TermFile(tmp_path / "term", path)
        file.persist(known)
        file.close()
    path.write_bytes(content)

    file = TermFile(tmp_path / "term", path, is_alone=True)
    file.close()

    assert file.state == (known or HardState(Term(0), None))
    assert kept_aside(tmp_path) == [content]
    assert path.exists() == (known is not None)


@pytest.mark.parametrize("mirrored", ["currTerm=4\n", "currTerm=5\n", None])
def test_a_text_file_that_lags_is_written_anew(tmp_path: Path, mirrored: str | None) -> None:
    path = tmp_path / "currterm"
    file = TermFile(tmp_path / "term", path)
    file.persist(OLD)
    file.close()
    path.unlink()
    if mirrored is not None:
        path.write_text(mirrored)

    TermFile(tmp_path / "term", path).close()

    assert decode_current_term(path.read_bytes()) == CurrentTerm(OLD.term, OLD.vote)


def test_who_is_told_to_stop_waits_no_longer_for_space() -> None:
    stop, signs = StopFlag(), []

    def write() -> None:
        try:
            with Path("/dev/full").open("wb", buffering=0) as file:
                file.write(b"vote")
        except OSError as error:
            raise storage_error("could not write term and vote", error) from error

    def be_told() -> None:
        signs.append("alive")
        stop.reason = "SIGTERM"

    with pytest.raises(DiskFullError, match="term and vote"):
        when_there_is_space(write, be_told, stop)

    assert signs == ["alive"]
