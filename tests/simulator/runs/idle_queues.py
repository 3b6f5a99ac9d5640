"""Runs about idle queues: logs are deleted and shipped, and leaders change.

``python -m tests.simulator --idle --seed N --count M``. Three members, of which are real: the
log's recovery and writer, the numbering, the dispatcher, what retention may delete, the files' way
from one member to another, and their taking the place of a log. There is no consensus: the run says
who writes, and gives the others what was written.

Most messages go to one queue, and the others are used now and then. Files of the log are deleted as
soon as they may be; members are down until the others have deleted what they lack, are killed, lose
power or their queues. Checked: each message has the number behind the last one of its queue,
whoever leads; in the end all members have the same ends, and a check of their stores finds nothing.
"""

from __future__ import annotations

import shutil
import tempfile
from array import array
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path
from random import Random

from ledgermq.dispatcher.dispatcher import DispatchWorker
from ledgermq.dispatcher.log_spans import LogSpans
from ledgermq.formats.dledger_entry import HEADER_SIZE as ENTRY_HEADER_SIZE
from ledgermq.formats.findings import Severity
from ledgermq.formats.records.message import Message, encode_message
from ledgermq.ipc.append_ring import AppendRing
from ledgermq.ipc.cursor_page import CursorPage, LogCursor, Role
from ledgermq.ipc.run_fence import RunFence
from ledgermq.members.log_replacement import mark_complete, replace_log, staging_folder
from ledgermq.model.config.settings import NodeSection, RetentionSection, Settings, StoreSection
from ledgermq.model.ids import Index, NodeId, Position, QueueId, Term
from ledgermq.process.runtime_paths import RuntimePaths
from ledgermq.raft_node.shipping.file_receiver import FileReceiver
from ledgermq.raft_node.shipping.file_shipper import FileShipper
from ledgermq.repair.check.check_store import CheckOptions, check_store
from ledgermq.repair.rebuild import rebuild
from ledgermq.sessions.client_rights import AccessGate
from ledgermq.sessions.client_socket import ClientSocket
from ledgermq.store.files.folders import delete_folder
from ledgermq.store.files.properties_file import DLedgerCheckpoint, encode_dledger_checkpoint
from ledgermq.store.files.small_file import replace_file
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.store.log.entry_files import EntryFiles
from ledgermq.store.log.log_writer import LogEnd, StampedRun
from ledgermq.store.queues import dispatch_checkpoint
from ledgermq.store.queues.derived_files import own_path
from ledgermq.store.queues.queue_end import find_end
from ledgermq.store.queues.queue_ends import ends_path, read_queue_ends
from ledgermq.store.retention import plan
from ledgermq.store.store_directory import open_directory
from ledgermq.wire.ship_frames import Offer, decode_ship_frame
from ledgermq.writer.log.log_opening import OpenLog, open_log, open_queue_offsets
from ledgermq.writer.log.resume import dispatched_position
from ledgermq.writer.retention.log_survey import take_survey
from tests.simulator.machine.process import InlineExecutor, SimulatedInbox
from tests.simulator.readers import OTHER_BOOT

FILE_SIZE = 8_192
QUEUE_FILE_SIZE = 400
INDEX_FILE_SIZE = 32 * 1_024
TERM = Term(1)
STEP_NS = 1_000_000_000
SHIP_STEPS_MAX = 2_000

Queue = tuple[str, int]
STEPS = 60
QUEUES: tuple[Queue, ...] = tuple((f"t{n}", q) for n in range(3) for q in range(2))
HOT: Queue = ("hot", 0)
MEMORY = Path("/dev/shm")


class StepClock:
    """The ``Clock`` of a run: time passes with each look."""

    def __init__(self) -> None:
        self._now_ns = 0

    def monotonic_ns(self) -> int:
        self._now_ns += STEP_NS
        return self._now_ns

    def epoch_ns(self) -> int:
        return 1_760_000_000_000_000_000 + self._now_ns

    def seed(self) -> int:
        return self._now_ns


class SilentBell:
    """An ``OrderBell`` to nobody."""

    def ring(self) -> None:
        pass

    def rouse(self) -> None:
        pass

    def send(self, order: bytes) -> bool:
        del order
        return True

    def close(self) -> None:
        pass


class StepEnvironment:
    """The ``Environment`` of a dispatcher whose turns the run takes."""

    def __init__(self, settings: Settings, page: CursorPage, clock: StepClock) -> None:
        self.settings = settings
        self.paths = RuntimePaths(settings.listen.runtime_dir)
        self.page = page
        self.inbox = SimulatedInbox(-1)
        self.clock = clock

    def bell(self, target: Role) -> SilentBell:
        del target
        return SilentBell()

    def run_fence(self) -> RunFence:
        raise AssertionError("a dispatcher takes part in no run")

    def append_ring(self) -> AppendRing:
        raise AssertionError("a dispatcher has no ring")

    def background(self) -> Executor:
        return InlineExecutor()

    def produce_socket(
        self, gate: AccessGate, *, message_size_max: int, note_ended: Callable[[], object]
    ) -> ClientSocket:
        raise AssertionError("a dispatcher has no producers")


class IdleMember:
    """One member; what is written to it is durable at once."""

    def __init__(self, root: Path, name: str) -> None:
        """An empty store, and nothing runs."""
        self.name = NodeId(name)
        self.settings = Settings(
            node=NodeSection(self_id=name, peers=("n0-h:1", "n1-h:1", "n2-h:1")),
            store=StoreSection(
                path_root_dir=root,
                mapped_file_size_commit_log=FILE_SIZE,
                mapped_file_size_consume_queue=QUEUE_FILE_SIZE,
                message_index_enable=False,
            ),
            retention=RetentionSection(bytes_max="1B", file_reserved_time=10_000_000),
        )
        self.paths = StorePaths.of(self.settings)
        self.clock = StepClock()
        self._log: OpenLog | None = None
        self._page: CursorPage | None = None
        self._dispatcher: DispatchWorker | None = None
        assert self.paths.index is not None
        self.paths.index.mkdir(parents=True)
        with (self.paths.index / f"{0:020d}").open("wb") as file:
            file.truncate(INDEX_FILE_SIZE)
        self.paths.own.mkdir()

    @property
    def is_up(self) -> bool:
        """Whether its processes run."""
        return self._log is not None

    @property
    def end(self) -> LogEnd:
        """End of its log."""
        assert self._log is not None
        return self._log.writer.end

    @property
    def first_index(self) -> Index:
        """Index of the oldest entry that it has; that behind the last one in an empty log."""
        if self.end.index_ < 0:
            return Index(0)
        files = self._entry_files()
        try:
            return files.first_index(self.end.index_)
        finally:
            files.forget()

    def start(self) -> None:
        """All processes begin, with a page that knows nothing."""
        assert self._log is None
        page_path = self.paths.root.with_name(self.paths.root.name + "-cursors")
        page_path.unlink(missing_ok=True)
        replace_log(self.paths)
        self._page = CursorPage.create(page_path)
        self._log = open_log(self.settings, is_in_use=False, sign_of_life=lambda: None)
        environment = StepEnvironment(self.settings, self._page, self.clock)
        self._dispatcher = DispatchWorker(environment, LogSpans.of(self.settings))
        self._publish()
        # The queues are looked at before anything is known to be committed.
        self._dispatcher.turn({}, self.clock.monotonic_ns())

    def stop(self, *, in_order: bool, is_power_lost: bool = False) -> None:
        """All processes end; not in order, they are killed."""
        assert self._log is not None and self._page is not None and self._dispatcher is not None
        if in_order:
            self._dispatcher.finish()
        self._dispatcher.close()
        last = self.end.index_
        assert self.paths.dledger_checkpoint is not None
        checkpoint = encode_dledger_checkpoint(DLedgerCheckpoint(last, last))
        replace_file(self.paths.dledger_checkpoint, checkpoint)
        self._log.writer.close()
        self._page.close()
        self._log = self._page = self._dispatcher = None
        saved = dispatch_checkpoint.read(own_path(self.paths.root))
        if is_power_lost and saved is not None:
            changed = saved._replace(boot_id=OTHER_BOOT)
            own_path(self.paths.root).write_bytes(dispatch_checkpoint.encode(changed))

    def lose_queues(self) -> None:
        """Somebody deletes the ConsumeQueues of the stopped store."""
        if self.paths.consume_queues.exists():
            delete_folder(self.paths.consume_queues)

    def append(self, queue: Queue, count: int) -> int:
        """Append messages, as a leader that has just been granted its term; the number of the first
        one.
        """
        assert self._log is not None and self._page is not None
        end = self.end.position
        offsets = open_queue_offsets(
            self._log,
            self.settings,
            begin=dispatched_position(self._page, end=end),
            end=end,
            sign_of_life=lambda: None,
        )
        topic, queue_id = queue
        number = offsets.next_offset(topic.encode(), QueueId(queue_id))
        message = Message(topic=topic, queue_id=queue_id, body=b"x" * 150, properties=b"")
        record = bytes(ENTRY_HEADER_SIZE) + encode_message(message)
        sizes = memoryview(array("I", [len(record)] * count))
        self._log.writer.put(
            record * count, sizes, [StampedRun(count, number)], term=TERM, store_timestamp=1_700
        )
        self._log.writer.publish()
        self._publish()
        return number

    def follow(self, leader: IdleMember) -> None:
        """Take the leader's entries that are missing, or its files where it has them no more."""
        assert self._log is not None
        if self.end.index_ + 1 < leader.first_index:
            self._take_files(leader)
        files = leader._entry_files()
        try:
            while self.end.index_ < leader.end.index_:
                first = Index(self.end.index_ + 1)
                span = files.span(first, leader.end.index_, size_max=FILE_SIZE)
                end = files.end_of(span.last)
                items = memoryview(span.items.tobytes())
                self._log.writer.append_entries(memoryview(span.data), items, end=end)
        finally:
            files.forget()
        self._publish()

    def dispatch(self, turns: int) -> None:
        """Let the dispatcher take turns."""
        assert self._dispatcher is not None
        for _ in range(turns):
            self._dispatcher.turn({}, self.clock.monotonic_ns())

    def delete_old(self) -> int:
        """Delete all that retention may; how many files."""
        assert self._page is not None
        survey = take_survey(self.settings, self.settings.retention, self._page)
        begin = Position(plan(survey, self.settings.retention).begin)
        old = [path for path in sorted(self.paths.data.iterdir()) if int(path.name) < begin]
        for path in old:
            path.unlink()
        self._page.publish_log_begin(begin, begin)
        return len(old)

    def _take_files(self, leader: IdleMember) -> None:
        offer = leader._offer()
        to_leader: deque[bytes] = deque()
        to_late: deque[list[bytes]] = deque()

        def send_leader(peer: NodeId, parts: Sequence[bytes]) -> bool:
            del peer
            to_leader.append(parts[0])
            return True

        def send_late(peer: NodeId, parts: Sequence[bytes]) -> bool:
            del peer
            to_late.append(list(parts))
            return True

        shipper = FileShipper(
            leader.paths.data,
            ends_path(leader.paths.root),
            send_late,
            bytes_per_s=1 << 60,
            wake=lambda: None,
            make_thread=lambda _: InlineExecutor(),
        )
        receiver = FileReceiver(
            staging_folder(self.paths),
            _Lacks(),
            send_leader,
            file_size=FILE_SIZE,
            wake=lambda: None,
            make_thread=lambda _: InlineExecutor(),
        )
        shipper.offer(self.name, offer, 0)
        for step in range(SHIP_STEPS_MAX):
            now_ns = step * 1_000_000
            while to_late:
                parts = to_late.popleft()
                frame = decode_ship_frame(parts[0])
                if isinstance(frame, Offer):
                    receiver.take_offer(now_ns, leader.name, frame)
                else:
                    data = memoryview(parts[1]) if len(parts) == 2 else None
                    receiver.take(leader.name, frame, data)  # type: ignore[arg-type]
            receiver.turn(now_ns)
            if receiver.is_complete:
                break
            while to_leader:
                shipper.take(self.name, decode_ship_frame(to_leader.popleft()))  # type: ignore[arg-type]
            shipper.turn(now_ns)
        assert receiver.is_complete, "files have not arrived"
        mark_complete(self.paths)
        self.stop(in_order=False)
        self.start()

    def _offer(self) -> Offer:
        files = self._entry_files()
        begin = min(int(path.name) for path in self.paths.data.iterdir())
        last_file = self.end.position - self.end.position % FILE_SIZE
        is_single = last_file <= begin
        last = self.end.index_ if is_single else Index(files.index_at(Position(last_file)) - 1)
        end = self.end.position if is_single else Position(last_file)
        files.forget()
        table = read_queue_ends(ends_path(self.paths.root))
        assert begin == 0 or (table is not None and table.position >= begin)
        return Offer(TERM, Position(begin), end, self.first_index, last, FILE_SIZE, b"", begin > 0)

    def _entry_files(self) -> EntryFiles:
        assert self._log is not None and self._log.recovered.index is not None
        # No setting: those that come with shipped files have RocketMQ's size.
        index = self._log.recovered.index
        return EntryFiles(
            self.paths.data,
            index.directory,
            file_size=FILE_SIZE,
            index_file_size=index.file_size,
        )

    def _publish(self) -> None:
        """All that is written is durable and committed."""
        assert self._page is not None
        cursor = LogCursor(self.end.position, self.end.index_, self.end.term)
        self._page.publish_written(cursor, 0)
        self._page.publish_durable(cursor, 0)
        self._page.publish_committed(cursor)


class _Lacks:
    def lacks_before(self, source: NodeId, term: Term, first: Index) -> bool:
        """Whether files are still wanted: they are."""
        del source, term, first
        return True


class WrongNumberError(Exception):
    """A promise about numbers was broken."""


class IdleRun:
    """One run.

    Attributes:
        history: what happened.
        shipped, deleted, leaders: how often.
    """

    def __init__(self, seed: int) -> None:
        """Three empty members that run."""
        self.history: list[str] = []
        self.shipped = self.deleted = self.leaders = 0
        self.acknowledged: Counter[Queue] = Counter()
        self._random = Random(seed)
        self._root = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        self._members = [IdleMember(self._root / name, name) for name in ("n0", "n1", "n2")]
        self._leader = self._members[0]
        for member in self._members:
            member.start()

    def go(self) -> None:
        """Take all steps, then judge.

        Raises:
            WrongNumberError: a promise was broken.
        """
        try:
            steps = (
                *((self._load,) * 8),
                *((self._use,) * 3),
                *((self._delete,) * 4),
                *((self._fall,) * 2),
                *((self._rise,) * 2),
                *((self._lead,) * 2),
            )
            for _ in range(STEPS):
                self._random.choice(steps)()
            self._judge()
        finally:
            self.close()

    def close(self) -> None:
        """Delete everything."""
        for member in self._members:
            if member.is_up:
                with suppress(OSError):
                    member.stop(in_order=False)
        shutil.rmtree(self._root, ignore_errors=True)

    def _up(self) -> list[IdleMember]:
        return [member for member in self._members if member.is_up]

    def _others_up(self) -> list[IdleMember]:
        return [member for member in self._up() if member is not self._leader]

    def _load(self) -> None:
        self._append(HOT, self._random.randrange(10, 60))

    def _use(self) -> None:
        self._append(self._random.choice(QUEUES), self._random.randrange(1, 30))

    def _append(self, queue: Queue, count: int) -> None:
        """Acknowledged when another member has it."""
        number = self._leader.append(queue, count)
        self._tell(f"{self._leader.name} {queue} {number}+{count}")
        if number != self.acknowledged[queue]:
            raise WrongNumberError(
                f"{queue} goes on at {number}, and {self.acknowledged[queue]} were acknowledged"
            )
        followers = self._others_up()
        for member in self._random.sample(followers, self._random.randint(1, len(followers))):
            self._follow(member)
        self.acknowledged[queue] += count
        for member in self._up():
            member.dispatch(self._random.randrange(4))

    def _follow(self, member: IdleMember) -> None:
        if member.end.index_ + 1 < self._leader.first_index:
            # Files are offered once the table of ends is there.
            self._leader.dispatch(6)
            self.shipped += 1
            self._tell(f"{member.name} is shipped files by {self._leader.name}")
        member.follow(self._leader)

    def _delete(self) -> None:
        member = self._random.choice(self._up())
        member.dispatch(self._random.randrange(8))
        deleted = member.delete_old()
        self.deleted += deleted
        self._tell(f"{member.name} deletes {deleted}")
        member.dispatch(self._random.randrange(2))

    def _fall(self) -> None:
        """One that the others can do without, and that has not the only copy of anything."""
        if len(self._up()) < len(self._members):
            return
        member = self._random.choice(self._others_up())
        for one in self._others_up():
            self._follow(one)
        how = self._random.choice(("in order", "killed", "power lost"))
        member.stop(in_order=how == "in order", is_power_lost=how == "power lost")
        self._tell(f"{member.name} falls: {how}")
        harm = self._random.choice(("", "", "queues lost", "queues rebuilt"))
        if harm == "queues lost":
            member.lose_queues()
        elif harm == "queues rebuilt":
            rebuild(open_directory(member.paths.root), member.settings.store)
        self._tell(f"{member.name} {harm}")

    def _rise(self) -> None:
        for member in self._members:
            if not member.is_up:
                member.start()
                self._tell(f"{member.name} rises")

    def _lead(self) -> None:
        member = self._random.choice(self._others_up())
        self._follow(member)
        self._leader = member
        self.leaders += 1
        self._tell(f"{member.name} leads")

    def _judge(self) -> None:
        self._rise()
        for member in self._others_up():
            self._follow(member)
        for member in self._members:
            # A leader's writer asks before anybody has dispatched for it.
            member.dispatch(6)
            member.stop(in_order=True)
        for member in self._members:
            self._judge_member(member)

    def _judge_member(self, member: IdleMember) -> None:
        root = member.paths.root
        checked = check_store(root, CheckOptions())
        faults = [one.as_text() for one in checked.findings if one.severity is not Severity.NOTE]
        if faults:
            raise WrongNumberError(f"{member.name}: {faults[0]}")
        for queue, count in self.acknowledged.items():
            folder = member.paths.consume_queues / queue[0] / str(queue[1])
            end = find_end(folder, QUEUE_FILE_SIZE, whole_below=None).end if folder.is_dir() else 0
            if count != end:
                raise WrongNumberError(
                    f"{member.name}: {queue} ends at {end}, {count} were acknowledged"
                )

    def _tell(self, text: str) -> None:
        self.history.append(text)


def run_idle_seed(seed: int) -> tuple[str, IdleRun]:
    """What was broken, empty where nothing was, and the run."""
    run = IdleRun(seed)
    try:
        run.go()
    except Exception as error:  # whatever it is, the seed belongs to it
        return f"{type(error).__name__}: {error}".replace("\n", " "), run
    return "", run
