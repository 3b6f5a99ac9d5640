"""An understudy of a master that a controller elects: what is confirmed, and what is taken back."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from ledgermq.conversion.understudy_note import read_note
from ledgermq.formats.epoch_file import Epoch
from ledgermq.model.errors import CorruptLogError, ProtocolError
from ledgermq.understudy.elected_frames import NO_BROKER, TRANSFER, ElectedFrameReader
from ledgermq.understudy.epochs import (
    EPOCHS_MAX,
    EPOCHS_NAME,
    checked_epochs,
    common_end,
    read_epochs,
    write_epochs,
)
from ledgermq.understudy.understudy import DivergedError
from tests.process.conftest import wait_until
from tests.unit.understudy.small_set import HANDSHAKE, Change, SmallElected, small_elected
from tests.unit.understudy.test_received_log import log_bytes
from tests.unit.understudy.test_understudy import (
    Follow,
    folder,
    follow,
    queue_bytes,
    store,
    wait_level,
)

pytestmark = pytest.mark.slow

__all__ = ["folder", "follow", "store"]


def boundary(store: Path, near: int) -> int:
    """Where the last record that begins at ``near`` or before does; all in the first file."""
    data, at = log_bytes(store), 0
    while (following := at + int.from_bytes(data[at : at + 4], "big")) <= near:
        at = following
    return at


def test_it_is_followed_as_a_learner_that_reports_what_is_confirmed(
    store: Path, folder: Path, follow: Follow
) -> None:
    begin = boundary(store, 700)
    with small_elected(store, [(1, 0), (4, begin)]) as master:
        master.confirmed = begin
        follower = follow(master)
        wait_level(follower, master)
        with master.changed:
            assert master.changed.wait_for(lambda: master.reports[0][-1] == begin, 30)
        status = follower.status
        assert (status.confirmed, status.unconfirmed_bytes) == (begin, master.end - begin)
        assert status.remoting == master.remoting
        follower.end()

    assert master.greetings == [(0, 1, NO_BROKER)]
    assert max(master.reports[0]) == begin
    assert log_bytes(folder) == log_bytes(store)
    assert read_epochs(folder) == (Epoch(1, 0), Epoch(4, begin))


def test_a_master_that_counts_whoever_reports_is_told_nothing(
    store: Path, folder: Path, follow: Follow
) -> None:
    with small_elected(store, [(1, 0)]) as master:
        master.config["allAckInSyncStateSet"] = "false"
        follower = follow(master)
        wait_level(follower, master)
        follower.end()

    assert set(master.reports[0]) == {0}
    assert follower.status.confirmed == -1
    assert log_bytes(folder) == log_bytes(store)


def test_an_epoch_that_begins_while_it_is_followed_is_kept(
    store: Path, folder: Path, follow: Follow
) -> None:
    begin = boundary(store, 700)
    with small_elected(store, [(1, 0)]) as master:
        master.end = begin
        follower = follow(master)
        wait_level(follower, master)
        master.epochs = [(1, 0), (2, begin)]
        master.grow(master.whole)
        wait_level(follower, master)
        follower.end()

    assert read_epochs(folder) == (Epoch(1, 0), Epoch(2, begin))
    assert len(master.greetings) == 1


def test_what_the_next_master_does_not_have_is_taken_back(
    store: Path, folder: Path, follow: Follow
) -> None:
    begin = boundary(store, 700)
    with small_elected(store, [(1, 0)]) as first, small_elected(store, []) as second:
        first.confirmed = begin
        follower = follow(first)
        wait_level(follower, first)
        second.epochs, second.end = [(1, 0), (2, begin)], begin
        first.leader = second.remoting
        first.end_connections()
        wait_level(follower, second)
        assert follower.status.remoting == second.remoting
        taken_back = log_bytes(folder)
        second.grow(second.whole)
        wait_level(follower, second)
        follower.end()

    assert taken_back == log_bytes(store)[:begin]
    assert log_bytes(folder) == log_bytes(store)
    assert queue_bytes(folder) == queue_bytes(store)
    assert read_epochs(folder) == (Epoch(1, 0), Epoch(2, begin))


def refused_by(
    store: Path, follow: Follow, epochs: list[tuple[int, int]], confirmed: int
) -> DivergedError:
    """What ends an understudy of a whole log when one with these epochs is elected."""
    with small_elected(store, [(1, 0)]) as first, small_elected(store, epochs) as second:
        first.confirmed = confirmed
        follower = follow(first)
        wait_level(follower, first)
        second.end = epochs[-1][1]
        first.leader = second.remoting
        first.end_connections()
        wait_until(lambda: not follower.is_alive(), "it ends")
    assert isinstance(follower.error, DivergedError)
    assert follower.status.state == "refused"
    return follower.error


@pytest.mark.parametrize("kind", ["confirmed", "nothing in common"])
def test_what_was_confirmed_is_not_taken_back(
    kind: str, store: Path, folder: Path, follow: Follow
) -> None:
    begin = boundary(store, 700)
    epochs = [(1, 0), (2, begin)] if kind == "confirmed" else [(2, begin)]
    error = refused_by(store, follow, epochs, begin + 1)

    assert error.details["confirmed"] == begin + 1
    assert error.details["same"] == (begin if kind == "confirmed" else -1)
    assert log_bytes(folder) == log_bytes(store)


def test_a_master_of_before_is_not_followed(store: Path, folder: Path, follow: Follow) -> None:
    """It does not know yet that another one was elected."""
    begin = boundary(store, 700)
    with small_elected(store, [(1, 0), (2, begin)]) as master:
        follower = follow(master)
        wait_level(follower, master)
        master.epochs, master.confirmed = [(1, 0)], 0
        master.end_connections()
        wait_until(lambda: "older than the one here" in follower.status.trouble, "it is told so")
        assert follower.status.state == "away"
        follower.end()

    assert log_bytes(folder) == log_bytes(store)


def without_master(master: SmallElected) -> None:
    master.leader = ""


def as_slave(master: SmallElected) -> None:
    master.config["brokerRole"] = "SLAVE"


def without_place(master: SmallElected) -> None:
    del master.config["haListenPort"]


def answers(data: bytes) -> Change:
    def change(master: SmallElected) -> None:
        master.handshake = data

    return change


STRANGE = {
    "nobody is elected": without_master,
    "not yet the master": as_slave,
    "without a port": without_place,
    "no handshake": answers(HANDSHAKE.pack(2, 0, 0, 0)),
    "below nothing": answers(HANDSHAKE.pack(1, -12, 0, 0)),
    "a part of an epoch": answers(HANDSHAKE.pack(1, 7, 0, 0) + bytes(7)),
    "too many epochs": answers(HANDSHAKE.pack(1, 12 * (EPOCHS_MAX + 1), 0, 0)),
    "epochs the wrong way": answers(
        HANDSHAKE.pack(1, 24, 0, 1) + struct.pack(">iqiq", 2, 9, 1, 900)
    ),
    "a plain master": answers(struct.pack(">qi", 0, 0) * 2),
}


@pytest.mark.parametrize("kind", STRANGE)
def test_a_set_that_says_what_none_says_costs_nothing_but_the_connection(
    kind: str, store: Path, folder: Path, follow: Follow
) -> None:
    with small_elected(store, [(1, 0)]) as master:
        STRANGE[kind](master)
        config, leader = dict(master.config), master.leader
        follower = follow(master)
        wait_until(lambda: follower.status.trouble, "trouble is told")
        assert (follower.status.state, follower.status.durable) == ("away", 0)
        assert (config, leader) == (master.config, master.leader)
        master.handshake, master.leader = None, master.remoting
        master.config |= {
            "brokerRole": "SYNC_MASTER",
            "haListenPort": master.address.rpartition(":")[2],
        }
        wait_level(follower, master)
    assert log_bytes(folder) == log_bytes(store)


def test_a_broker_that_is_plain_now_is_refused(store: Path, folder: Path, follow: Follow) -> None:
    with small_elected(store, [(1, 0)]) as master:
        follower = follow(master)
        wait_level(follower, master)
        note = read_note(folder)
        master.config["enableControllerMode"] = "false"
        master.end_connections()
        wait_until(lambda: not follower.is_alive(), "it ends")

    assert note is not None
    assert "enableControllerMode=true" in note.config
    assert "another broker set" in str(follower.error)


A, B, C = Epoch(1, 0), Epoch(2, 100), Epoch(3, 200)


@pytest.mark.parametrize(
    ("ours", "our_end", "theirs", "their_end", "expected"),
    [
        ((A,), 70, (A,), 90, 70),
        ((A,), 90, (A,), 70, 70),
        ((A,), 150, (A, B), 300, 100),
        ((A, B), 180, (A, B), 150, 150),
        ((A, B), 180, (A, Epoch(3, 120)), 500, 100),
        ((A, Epoch(2, 90)), 180, (A, B), 500, 90),
        # What has begun where a log ends has nothing in it.
        ((A, B, C), 150, (A, B), 130, 130),
        ((A, B), 100, (A, B), 100, 100),
        ((B,), 180, (A, B, C), 500, 180),
        ((B,), 180, (C,), 500, None),
        ((Epoch(2, 90),), 180, (A, B), 500, None),
        ((), 180, (A,), 500, None),
        ((A,), 70, (), 0, None),
    ],
)
def test_logs_are_the_same_up_to_the_end_of_the_last_epoch_of_both(
    ours: tuple[Epoch, ...],
    our_end: int,
    theirs: tuple[Epoch, ...],
    their_end: int,
    expected: int | None,
) -> None:
    assert common_end(ours, our_end, theirs, their_end) == expected


def test_epochs_are_kept_and_refused_where_they_are_none(tmp_path: Path) -> None:
    (tmp_path / "ledgermq").mkdir()
    assert read_epochs(tmp_path) == ()
    write_epochs(tmp_path, (A, B, C))
    assert read_epochs(tmp_path) == (A, B, C)
    write_epochs(tmp_path, (B, A))
    with pytest.raises(CorruptLogError):
        read_epochs(tmp_path)
    (tmp_path / "ledgermq" / EPOCHS_NAME).write_bytes(b"{}")
    with pytest.raises(CorruptLogError):
        read_epochs(tmp_path)
    with pytest.raises(ProtocolError):
        checked_epochs((A, Epoch(2, 0)))
    with pytest.raises(ProtocolError):
        checked_epochs(Epoch(number, number) for number in range(EPOCHS_MAX + 1))


@pytest.mark.parametrize("step", [1, 35, 36, 37, 1_000])
def test_bodies_epochs_and_what_is_confirmed_are_found_however_the_frames_are_cut(
    step: int,
) -> None:
    rows = [(b"ab", 1, 0, 5), (b"", 1, 0, 9), (b"cd", 2, 13, 11), (b"e", 2, 13, 10)]
    data, position = b"", 11
    for body, number, start, confirmed in rows:
        at = position if body else -1
        data += TRANSFER.pack(2, len(body), at, number, start, confirmed) + body
        position += len(body)
    reader = ElectedFrameReader(11)
    found = b"".join(
        bytes(part)
        for at in range(0, len(data), step)
        for part in reader.feed(data[at : at + step])
    )

    assert (found, reader.position) == (b"abcde", 16)
    assert (reader.epochs, reader.confirmed) == ([Epoch(1, 0), Epoch(2, 13)], 10)
    for strange in (TRANSFER.pack(1, 0, 16, 2, 13, 10), TRANSFER.pack(2, 1, 15, 2, 13, 10)):
        with pytest.raises(ProtocolError):
            ElectedFrameReader(16).feed(strange)
