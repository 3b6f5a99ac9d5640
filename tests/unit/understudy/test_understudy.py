"""An understudy beside a small master: what is taken, what is reported, whom it refuses."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from ledgermq.conversion.understudy_note import (
    STATUS_NAME,
    UnderstudyNote,
    read_note,
    write_note,
)
from ledgermq.daemon.backup_source import committed_end
from ledgermq.ipc.loop import StopFlag
from ledgermq.model.errors import ConfigError, CorruptLogError, LedgerError, NotLeaderError
from ledgermq.process.clock import NS_PER_MS, MachineClock
from ledgermq.remoting.ha_frames import HEADER, PUSHED_SIZE_MAX
from ledgermq.store.queues.queue_ends import QueueEnds, ends_path, read_queue_ends
from ledgermq.store.store_view import StoreView
from ledgermq.understudy import understudy as understudies
from ledgermq.understudy.followed_settings import look_at_master, waits_for_slaves
from ledgermq.understudy.ha_link import READ_SIZE
from ledgermq.understudy.master_access import MasterAccess
from ledgermq.understudy.promotion import finish_store
from ledgermq.understudy.understudy import DivergedError, Understudy
from ledgermq.understudy.understudy_status import UnderstudyStatus, read_status, write_status
from tests.conftest import Golden
from tests.process.conftest import wait_until
from tests.small_store import SIZES, write_store
from tests.unit.understudy.small_master import FRAME, SmallMaster, push_all, small_master
from tests.unit.understudy.test_received_log import log_bytes

pytestmark = pytest.mark.slow

RATE = 1 << 30
LARGEST = 400_000
"""More than the largest record of the golden stores has."""


class Follower(threading.Thread):
    """An understudy of the folder ``root`` in a thread; ``error`` is what ended it."""

    def __init__(
        self,
        root: Path,
        monkeypatch: pytest.MonkeyPatch,
        *,
        rate: int = RATE,
        clock: MachineClock | None = None,
    ) -> None:
        super().__init__(daemon=True)
        # Threads get no signals: the flag is set by hand.
        monkeypatch.setattr(StopFlag, "fileno", lambda _: self._pipe.fileno())
        self._pipe, self._end = socket.socketpair()
        self._flag = StopFlag()
        self._root = root
        self.error: LedgerError | None = None
        note = read_note(root)
        assert note is not None
        self._understudy = Understudy(
            root, note, MasterAccess(), self._flag, clock or MachineClock(), rate=rate
        )

    def run(self) -> None:
        try:
            self._understudy.run()
        except LedgerError as error:
            self.error = error
        finally:
            self._understudy.close()

    @property
    def status(self) -> UnderstudyStatus:
        found = read_status(self._root)
        return found or UnderstudyStatus(state="", since_ms=0, told_at_ms=0)

    @property
    def durable(self) -> int:
        return self._understudy._log.durable

    def end(self) -> None:
        if self._flag.reason:
            return
        self._flag.reason = "told to"
        self._end.send(b"x")
        self.join()
        self._pipe.close()
        self._end.close()


Follow = Callable[[SmallMaster], Follower]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "understudy"


@pytest.fixture
def follow(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Follow]:
    """Begins to follow a master, with waits that are short."""
    monkeypatch.setattr(understudies, "WAIT_MIN_MS", 10)
    monkeypatch.setattr(understudies, "WAIT_MAX_MS", 20)
    monkeypatch.setattr(understudies, "TABLES_MS", 50)
    monkeypatch.setattr(understudies, "TOLD_MS", 20)
    begun: list[Follower] = []

    def begin(master: SmallMaster) -> Follower:
        if read_note(folder) is None:
            folder.mkdir()
            write_note(folder, look_at_master(master.address, master.remoting, MasterAccess()))
        begun.append(Follower(folder, monkeypatch))
        begun[-1].start()
        return begun[-1]

    yield begin
    for one in begun:
        one.end()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A plain store of several small log files."""
    root = tmp_path / "master"
    write_store(root, entries=False, messages=20)
    (root / "config" / "subscriptionGroup.json").write_text('{"subscriptionGroupTable":{}}')
    (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"orders@g":{0:3}}}')
    return root


@contextmanager
def master_of(store: Path, push: Callable[..., None] | None = None) -> Iterator[SmallMaster]:
    with small_master(store, push) as master:
        master.config["maxHashSlotNum"] = str(SIZES["max_hash_slot_num"])
        master.config["maxIndexNum"] = str(SIZES["max_index_num"])
        yield master


def wait_level(follower: Follower, master: SmallMaster) -> None:
    """Wait until all of the log is in the queues, and the tables are those of now."""

    def is_level() -> bool:
        assert follower.error is None, follower.error
        status = follower.status
        return (status.durable, status.dispatched, status.tables_position) == (master.end,) * 3

    wait_until(is_level, "the understudy is level")


def queue_bytes(root: Path) -> dict[str, bytes]:
    files = sorted((root / "consumequeue").rglob("*"))
    return {str(path.relative_to(root)): path.read_bytes() for path in files if path.is_file()}


@pytest.mark.parametrize("name", ["gs1", "g6", "p551v2k"])
def test_log_and_queues_become_those_of_the_master(
    name: str, golden: Golden, folder: Path, follow: Follow
) -> None:
    with small_master(golden(name)) as master:
        follower = follow(master)
        wait_level(follower, master)
        follower.end()
        heard = master.reports[0]

    assert log_bytes(folder) == log_bytes(golden(name))
    assert queue_bytes(folder) == queue_bytes(golden(name))
    assert heard == sorted(heard)
    assert heard[-1] == master.end


def test_every_file_comes_although_a_master_begins_with_its_newest(
    store: Path, folder: Path, follow: Follow
) -> None:
    with master_of(store) as master:
        wait_level(follow(master), master)

        assert master.reports[0][0] == 1
    assert log_bytes(folder) == log_bytes(store)


def test_a_log_that_is_empty_is_followed_from_its_first_message(
    store: Path, folder: Path, follow: Follow
) -> None:
    with master_of(store) as master:
        master.end = 0
        follower = follow(master)
        wait_until(lambda: follower.status.state == "following", "it follows", 30)
        master.grow(300)
        wait_until(lambda: follower.status.durable > 0, "the first message")
        master.grow(master.whole)
        wait_level(follower, master)

    assert log_bytes(folder) == log_bytes(store)


def test_a_log_whose_first_files_are_deleted_is_followed_from_where_it_begins(
    store: Path, folder: Path, follow: Follow
) -> None:
    for path in sorted((store / "commitlog").iterdir())[:2]:
        path.unlink()
    with master_of(store) as master:
        assert master.first > 0
        # Of which the log has no message any more.
        master.queue_ends = {("orders", 0): 40, ("orders", 1): 41}
        follower = follow(master)
        wait_level(follower, master)

    assert log_bytes(folder) == log_bytes(store)
    assert read_queue_ends(ends_path(folder)) == QueueEnds(
        master.first, {(b"orders", 0): 40, (b"orders", 1): 41}
    )


def test_only_what_is_durable_is_reported_and_each_report_after_it(
    store: Path, folder: Path, follow: Follow
) -> None:
    """A master that waits for its slave goes on by these."""
    with closing(StoreView(store)) as view:
        begins = sorted(one.message.physical_offset for one in view.messages())
    with master_of(store) as master:
        ends = [*begins[1:], master.whole]
        master.end = ends[0]
        follow(master)
        for end in ends:
            master.grow(end)
            with master.changed:
                assert master.changed.wait_for(
                    lambda end=end: any(heard[-1] >= end for heard in master.reports), 30
                )
    assert log_bytes(folder) == log_bytes(store)


def test_a_connection_that_breaks_is_made_again_where_the_log_ends(
    golden: Golden, folder: Path, follow: Follow
) -> None:
    with small_master(golden("gs1")) as master:
        master.end = master.whole // 3
        follower = follow(master)
        for end in range(master.end, master.whole, 70_001):
            master.grow(end)
            wait_until(lambda end=end: follower.status.durable > end - LARGEST, "it goes on")
            before = len(master.reports)
            master.end_connections()
            wait_until(lambda before=before: len(master.reports) > before, "it connects again")
        master.grow(master.whole)
        wait_level(follower, master)
    assert log_bytes(folder) == log_bytes(golden("gs1"))
    assert queue_bytes(folder) == queue_bytes(golden("gs1"))


def says(data: Callable[[SmallMaster, int], bytes]) -> Callable[..., None]:
    """What a master says behind a slave's report, once, before it waits."""

    def push(master: SmallMaster, connection: socket.socket, position: int) -> None:
        connection.sendall(data(master, position))
        with master.changed:
            master.changed.wait_for(lambda: not master.is_open, 30)

    return push


def framed(position: int, body: bytes, size: int | None = None) -> bytes:
    return HEADER.pack(position, len(body) if size is None else size) + body


def zeros_behind_two_records(master: SmallMaster, position: int) -> bytes:
    first = int.from_bytes(master.bytes_from(0, 4), "big")
    end = first + int.from_bytes(master.bytes_from(first, 4), "big")
    return framed(position, master.bytes_from(position, end - position)) + framed(end, bytes(500))


HOSTILE: dict[str, Callable[..., None]] = {
    "too large": says(lambda _, at: framed(at, bytes(100), PUSHED_SIZE_MAX + 1)),
    "below nothing": says(lambda _, at: framed(at, bytes(100), -1)),
    "jumps ahead": says(lambda _, at: framed(at + 900, bytes(100))),
    "jumps back": says(lambda _, at: framed(at - 1, bytes(100))),
    "zeros": says(zeros_behind_two_records),
    "no protocol": says(lambda *_: b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "its end": lambda _master, connection, _: connection.shutdown(socket.SHUT_RDWR),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_master_that_sends_what_none_sends_costs_nothing_but_the_connection(
    kind: str, store: Path, folder: Path, follow: Follow
) -> None:
    whole = log_bytes(store)
    with master_of(store, HOSTILE[kind]) as master:
        follower = follow(master)
        wait_until(lambda: len(master.reports) > 2, "it tries again")
        wait_until(lambda: follower.status.trouble, "trouble is told")

        assert follower.status.state == "away"
        assert whole.startswith(log_bytes(folder))
        # A true one at the same place is followed.
        master._push = push_all
        wait_level(follower, master)
    assert log_bytes(folder) == whole


def changed_copy(store: Path, target: Path, at: int) -> Path:
    """A store of which one byte is another one."""
    shutil.copytree(store, target)
    files = sorted((target / "commitlog").iterdir())
    size = files[0].stat().st_size
    path = files[at // size]
    data = bytearray(path.read_bytes())
    data[at % size] ^= 1
    path.write_bytes(data)
    return target


def test_a_master_whose_log_is_another_one_is_refused(
    golden: Golden, tmp_path: Path, folder: Path, follow: Follow
) -> None:
    store = golden("gs1")
    with small_master(store) as master:
        master.end = master.whole - 5_000
        follower = follow(master)
        wait_until(lambda: follower.status.durable > master.end - LARGEST, "it follows")
        follower.end()
    before = log_bytes(folder)
    other = changed_copy(store, tmp_path / "other", len(before) - 100)
    with small_master(other) as master:
        note = read_note(folder)
        assert note is not None
        write_note(folder, look_at_master(master.address, master.remoting, MasterAccess()))
        follower = follow(master)
        wait_until(lambda: not follower.is_alive(), "it ends")

    assert isinstance(follower.error, DivergedError)
    assert follower.status.state == "refused"
    assert "another one" in follower.status.trouble
    assert log_bytes(folder) == before


def test_a_master_that_has_lost_its_end_is_refused(
    golden: Golden, folder: Path, follow: Follow
) -> None:
    with small_master(golden("gs1")) as master:
        follower = follow(master)
        wait_level(follower, master)
        master.end -= 10_000
        master.end_connections()
        wait_until(lambda: not follower.is_alive(), "it ends")

    assert isinstance(follower.error, DivergedError)
    assert log_bytes(folder) == log_bytes(golden("gs1"))


def test_a_master_that_has_deleted_what_comes_next_is_refused(
    store: Path, folder: Path, follow: Follow
) -> None:
    with master_of(store) as master:
        master.end = 400
        follower = follow(master)
        wait_until(lambda: follower.status.durable > 0, "it follows")
        # First of all: over a connection that lasts it would get what comes next at once. The next
        # one is half a second later at the soonest.
        master.end_connections()
        master.end, master.first = master.whole, 1_800
        wait_until(lambda: not follower.is_alive(), "it ends")

    assert isinstance(follower.error, DivergedError)
    assert "deleted" in str(follower.error)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("enableDLegerCommitLog", "true", "DLedger"),
        ("enableLmq", "true", "light queues"),
        ("brokerRole", "SLAVE", "no master"),
        ("mappedFileSizeCommitLog", "much", "how large"),
    ],
)
def test_a_broker_that_cannot_be_followed_is_refused_by_its_name(
    key: str, value: str, said: str, store: Path
) -> None:
    with master_of(store) as master:
        master.config[key] = value

        with pytest.raises(ConfigError, match=said):
            look_at_master(master.address, master.remoting, MasterAccess())
        assert master.reports == []


@pytest.mark.parametrize(
    ("rows", "waits"),
    [
        ({"brokerRole": "ASYNC_MASTER"}, False),
        ({"brokerRole": "SYNC_MASTER"}, True),
        ({"brokerRole": "SYNC_MASTER", "version": "V5_5_1"}, False),
        ({"brokerRole": "SYNC_MASTER", "version": "V5_5_1", "inSyncReplicas": "1"}, False),
        ({"brokerRole": "SYNC_MASTER", "version": "V5_5_1", "inSyncReplicas": "2"}, True),
        ({"brokerRole": "SLAVE", "enableControllerMode": "true", "controllerAddr": "h:1"}, None),
    ],
)
def test_it_is_known_whether_a_master_waits_for_its_slaves(
    rows: dict[str, str], waits: bool | None, store: Path
) -> None:
    with master_of(store) as master:
        master.version = rows.pop("version", "V4_9_4")
        master.config |= rows

        assert waits_for_slaves(
            look_at_master(master.address, master.remoting, MasterAccess())
        ) is (waits)


@pytest.mark.parametrize(("confirmed", "end"), [(70, 70), (120, 100), (-1, None)])
def test_of_an_elected_master_only_what_is_confirmed_goes_into_backups(
    confirmed: int, end: int | None, folder: Path
) -> None:
    folder.mkdir()
    rows = "enableControllerMode=true\ncontrollerAddr=127.0.0.1:1"
    note = UnderstudyNote(master="h:1", remoting="h:2", product=5, log_file_size=1, config=rows)
    write_note(folder, note)
    status = UnderstudyStatus(
        state="following", since_ms=0, told_at_ms=0, durable=100, confirmed=confirmed
    )
    write_status(folder, status)
    if end is None:
        with pytest.raises(NotLeaderError, match="confirmed"):
            committed_end(folder)
    else:
        assert committed_end(folder) == end


class RestingClock(MachineClock):
    """Stands still but for the rests that an understudy takes."""

    rested_ms = 0

    def monotonic_ns(self) -> int:  # type: ignore[override]
        return (1_000_000 + self.rested_ms) * NS_PER_MS

    def rest(self, wait_ms: int) -> None:
        self.rested_ms += wait_ms


def test_no_more_is_taken_than_the_rate_allows(
    golden: Golden, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = RestingClock()
    monkeypatch.setattr(Understudy, "_rest", lambda _, wait_ms: clock.rest(wait_ms))
    with small_master(golden("gs1")) as master:
        folder.mkdir()
        write_note(folder, look_at_master(master.address, master.remoting, MasterAccess()))
        follower = Follower(folder, monkeypatch, rate=2 * FRAME, clock=clock)
        follower.start()
        wait_until(lambda: follower.durable == master.end, "all has come")
        follower.end()

    assert clock.rested_ms >= (master.end - READ_SIZE) * 1_000 // (2 * FRAME)


def test_a_status_that_is_cut_is_made_anew_also_without_a_master_and_the_folder_is_promoted(
    store: Path, folder: Path, follow: Follow
) -> None:
    with master_of(store) as master:
        follower = follow(master)
        wait_level(follower, master)
        follower.end()
    (folder / "ledgermq" / STATUS_NAME).write_bytes(b"")
    with pytest.raises(CorruptLogError, match="understudy run makes it anew"):
        read_status(folder)
    again = follow(master)
    wait_until(lambda: (folder / "ledgermq" / STATUS_NAME).stat().st_size, "a status")
    again.end()
    note = read_note(folder)
    assert note is not None
    found = finish_store(folder, note, read_status(folder))

    assert again.error is None
    assert found.end == master.end
