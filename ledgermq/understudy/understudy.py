"""Understudy: follows a running master's log, queue by queue and table by table.

One thread takes what comes, and in this order: a record is compared with its checksum, appended,
synced, *then* reported to the master, then dispatched to queues and index. So a master that waits
for its slave acknowledges what is on two disks. A second thread asks for the tables, a third one
syncs what is derived; neither is waited for.

What goes wrong at the master or between, or a full disk here, costs the connection alone, and is
tried again after a bounded wait. Only where the master's log is another one, the process ends: that
is for people.
"""

from __future__ import annotations

import logging
import select
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from ledgermq.conversion.understudy_note import UnderstudyNote
from ledgermq.ipc.loop import StopFlag
from ledgermq.model.errors import (
    ConfigError,
    CorruptLogError,
    DiskFullError,
    LedgerError,
    ProtocolError,
    UnreachableError,
)
from ledgermq.model.limits import QUEUE_ID_MAX
from ledgermq.model.names.stored_name import is_file_name
from ledgermq.process.clock import NS_PER_MS, Clock, epoch_ms
from ledgermq.remoting.codes import RequestCode
from ledgermq.store.index.tag_items import keep_tags
from ledgermq.store.queues.batch_topics import batch_topics
from ledgermq.store.queues.queue_ends import QueueEnds, ends_path, write_queue_ends
from ledgermq.understudy.elected_frames import ElectedLink
from ledgermq.understudy.elected_master import elected_by, ha_address, remoting_of_master
from ledgermq.understudy.epochs import checked_epochs, common_end, read_epochs, write_epochs
from ledgermq.understudy.followed_queues import FollowedQueues
from ledgermq.understudy.followed_settings import MASTER_ROLES, check_mode, section_of
from ledgermq.understudy.followed_tables import (
    TOPIC_TABLE,
    TOPICS_FILE,
    FollowedTables,
    TableRound,
    rows_document,
)
from ledgermq.understudy.ha_link import HaLink
from ledgermq.understudy.master_access import MasterAccess
from ledgermq.understudy.master_questions import MasterQuestions, MasterReach, MasterSettings
from ledgermq.understudy.received_log import ReceivedLog
from ledgermq.understudy.understudy_status import (
    FollowingState,
    UnderstudyStatus,
    read_status,
    write_status,
)

logger = logging.getLogger(__name__)

SIGN_MS = 5_000
"""RocketMQ's ``haSendHeartbeatInterval``: a slave reports at least so often."""

HOUSEKEEPING_MS = 20_000
"""RocketMQ's ``haHousekeepingInterval``: of whom nothing comes for so long is gone."""

WAIT_MIN_MS, WAIT_MAX_MS = 500, 15_000
"""Waits before the next connection: each is twice the one before."""

TABLES_MS = 3_000
"""Between two rounds of questions for the tables, and before the first one after a failure."""

TABLES_PAUSE = 10
"""Least pause behind a round, in times that it took: large tables are a master's work, too."""

_QUEUES = ("readQueueNums", "writeQueueNums")

TOLD_MS = 1_000
"""Between two checkpoints, flushes of what is derived, and notes of the status."""


class DivergedError(ConfigError):
    """The master's log is not the one that is here: it must not be followed."""


class Understudy:
    """Owned by the process of ``ledgermq understudy run``, which holds the folder's locks."""

    def __init__(
        self,
        root: Path,
        note: UnderstudyNote,
        access: MasterAccess,
        stop: StopFlag,
        clock: Clock,
        *,
        rate: int,
    ) -> None:
        """Open the log, and cut what a crash has left behind its end; nobody is asked yet.

        Args:
            access: how the master lets in who asks at its remoting port.
            rate: bytes a second that are taken from the master at most.

        Raises:
            ConfigError: the files there are not of the sizes that the master has.
            CorruptLogError: the log is damaged.
            StorageError: the operating system refused.
        """
        self._root, self._note, self._stop, self._clock = root, note, stop, clock
        self._access, self._rate = access, rate
        self._section = section_of(note, root)
        self._log = ReceivedLog(root, file_size=note.log_file_size)
        self._queues: FollowedQueues | None = None
        self._tables = FollowedTables(
            root,
            access,
            clock,
            has_wheel=MasterSettings(note.config).is_true("timerWheelEnable"),
        )
        self._asking = ThreadPoolExecutor(1, thread_name_prefix="tables")
        self._round: Future[TableRound] | None = None
        self._round_due_ms = 0
        self._round_counts = True
        self._elected = elected_by(MasterSettings(note.config))
        self._epochs = read_epochs(root)
        self._paid_ms = self._told_due_ms = 0
        self._is_full = False
        now_ms = epoch_ms(clock)
        before = self._status_before()
        self._status = UnderstudyStatus(
            state=FollowingState.AWAY,
            # Away since the last process was in touch, not since this one began.
            since_ms=now_ms if before is None else before.since_ms,
            told_at_ms=now_ms,
            tables_at_ms=before.tables_at_ms if before else 0,
            tables_position=before.tables_position if before else 0,
            master_end=before.master_end if before else -1,
            remoting=before.remoting if before else "",
            confirmed=before.confirmed if before else -1,
        )
        if before is not None and before.state == FollowingState.FOLLOWING:
            self._change(since_ms=before.told_at_ms)

    def _status_before(self) -> UnderstudyStatus | None:
        """What the last process has told. Where that is lost, tables are as old as their file, all
        topics of the log may have been made since, and nothing that is here is taken back.
        """
        try:
            return read_status(self._root)
        except CorruptLogError as error:
            logger.warning("%s", error)
        topics = self._root / "config" / TOPICS_FILE
        written_ms = topics.stat().st_mtime_ns // NS_PER_MS if topics.exists() else 0
        return UnderstudyStatus(
            state=FollowingState.AWAY,
            since_ms=written_ms,
            told_at_ms=written_ms,
            tables_at_ms=written_ms,
            confirmed=-1 if self._elected is None else self._log.durable,
        )

    def run(self) -> None:
        """Follow until told to stop.

        Raises:
            DivergedError: the master's log is another one.
            ConfigError: the master cannot be followed any more; says why.
            CorruptLogError, StorageError: the disk here; the process is to end.
        """
        wait_ms = WAIT_MIN_MS
        try:
            while not self._stop.reason:
                begun = self._log.durable
                try:
                    self._follow()
                except (ProtocolError, UnreachableError, DiskFullError) as error:
                    # What was refused for want of space is not written, and is asked for again.
                    self._turn_away(error)
                wait_ms = WAIT_MIN_MS if self._log.durable > begun else wait_ms
                self._rest(wait_ms)
                wait_ms = min(2 * wait_ms, WAIT_MAX_MS)
        except ConfigError as error:
            self._enter(FollowingState.REFUSED, str(error))
            self._tell()
            raise
        self._finish()

    def close(self) -> None:
        """Close everything; nothing is synced."""
        self._asking.shutdown()
        self._tables.close()
        if self._queues is not None:
            self._queues.close()
        self._log.close()

    def _follow(self) -> None:
        """One connection, from its making to its end."""
        self._log.drop_rest()
        # Of what a connection that broke has brought, as far as it was whole.
        self._made_durable()
        self._dispatch()
        link, reach = self._attach()
        try:
            if isinstance(link, ElectedLink):
                self._obey(link)
            self._compare(reach)
            known = self._log.last_bytes()
            if known and len(known) == self._log.end:
                # Who asks a master for position 0 is given its newest file.
                known = known[1:]
            link.begin(self._log.end - len(known))
            self._receive(link, memoryview(known))
        finally:
            link.close()

    def _attach(self) -> tuple[HaLink, MasterReach]:
        """Connect, and say what the master has; a log that is empty begins where that does."""
        elected = self._elected
        remoting = (
            self._note.remoting if elected is None else remoting_of_master(elected, self._access)
        )
        questions = MasterQuestions(remoting, self._access)
        try:
            told = MasterSettings(questions.settings())
            check_mode(told, remoting)
            found = elected_by(told)
            if (found and found.broker_name) != (elected and elected.broker_name):
                raise ConfigError(
                    "the broker is of another broker set now, or of none", remoting=remoting
                )
            if told.text("brokerRole").strip() not in MASTER_ROLES:
                raise ProtocolError("the broker is not the master yet", remoting=remoting)
            size = told.number("mappedFileSizeCommitLog")
            if size != self._note.log_file_size:
                raise DivergedError(
                    "the master's log has files of another size now",
                    size=size,
                    here=self._note.log_file_size,
                )
            reach = questions.reach()
            self._change(master_end=reach.end, remoting=remoting)
            if self._log.is_empty:
                self._begin(questions, reach)
        finally:
            questions.close()
        if elected is None:
            return HaLink(self._note.master), reach
        waits_for_all = told.is_true("allAckInSyncStateSet")
        return ElectedLink(ha_address(told), waits_for_all=waits_for_all), reach

    def _obey(self, link: ElectedLink) -> None:
        """Take back what the brokers that go on do not have, and keep the master's epochs.

        Raises:
            DivergedError: that was confirmed, or nobody can tell what it is.
            ProtocolError: the master is an earlier one.
        """
        here = self._log.durable
        if self._epochs and (not link.epochs or link.epochs[-1].number < self._epochs[-1].number):
            raise ProtocolError(
                "the broker was the master before: its epoch is older than the one here",
                address=link.address,
                here=self._epochs[-1].number,
            )
        if not self._log.is_empty:
            assert self._log.first is not None
            same = common_end(self._epochs, here, link.epochs, link.master_end)
            if same is None or same <= self._log.first or same < min(here, self._status.confirmed):
                raise DivergedError(
                    "the brokers that go on do not have what was confirmed: another one was elected"
                    " than those in sync, or it is another broker set. Promote this folder, or"
                    " begin with an empty one",
                    same=-1 if same is None else same,
                    confirmed=self._status.confirmed,
                    here=here,
                )
            if same < here:
                self._cut(same)
        if self._epochs != link.epochs:
            write_epochs(self._root, link.epochs)
            self._epochs = link.epochs

    def _cut(self, position: int) -> None:
        logger.warning(
            "understudy takes back what the new master does not have: position=%d here=%d",
            position,
            self._log.durable,
        )
        self._close_queues()
        self._log.cut(position)
        # What is asked for meanwhile is of the master before.
        self._round_counts = False
        self._change(
            durable=self._log.durable,
            tables_position=min(self._status.tables_position, self._log.durable),
        )
        self._tell()
        self._dispatch()

    def _learn(self, link: ElectedLink) -> None:
        """Keep which epochs what comes is of, before any of it is written.

        Raises:
            ProtocolError: they do not follow those that are known.
        """
        self._change(confirmed=link.confirmed)
        for epoch in link.epochs_come():
            if epoch not in self._epochs:
                self._epochs = checked_epochs([*self._epochs, epoch])
                write_epochs(self._root, self._epochs)

    def _compare(self, reach: MasterReach) -> None:
        """Look whether the master's log goes on with this one.

        Raises:
            DivergedError: it does not.
        """
        where = {"begin": reach.begin, "end": reach.end, "here": self._log.durable}
        if reach.end < self._log.durable and self._elected is None:
            raise DivergedError(
                "the master's log ends before the one here: it has lost what it once had, or is"
                " another one. Promote this folder, or begin with an empty one",
                **where,
            )
        if reach.begin > self._log.durable:
            raise DivergedError(
                "the master has deleted what comes next: begin with an empty folder", **where
            )

    def _begin(self, questions: MasterQuestions, reach: MasterReach) -> None:
        """Let the log begin where the master's does."""
        self._log.begin_at(reach.begin)
        if self._note.product >= 5:
            keep_tags(self._root)
        if reach.begin > 0:
            self._keep_queue_ends(questions, reach.begin)
        elif reach.end > 0 and self._elected is None:
            # That can be asked for by the slaves' protocol only where it is in the newest file.
            self._log.take(memoryview(questions.record_at(0)))
            if self._log.is_empty:
                raise ProtocolError("the master's first record is not whole", position=0)
            self._made_durable()

    def _keep_queue_ends(self, questions: MasterQuestions, position: int) -> None:
        """Note where the queues end: of some the master has no message any more."""
        body = questions.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
        topics = rows_document(body, TOPICS_FILE, TOPIC_TABLE)[TOPIC_TABLE]
        assert isinstance(topics, dict)
        ends: dict[tuple[bytes, int], int] = {}
        for name, row in topics.items():
            counts = [row.get(key) for key in _QUEUES] if isinstance(row, dict) else []
            queues = max((one for one in counts if isinstance(one, int)), default=0)
            # Others have no queues here.
            for queue_id in range(min(queues, QUEUE_ID_MAX + 1)) if is_file_name(name) else ():
                end = questions.queue_end(name, queue_id)
                if end > 0:
                    ends[name.encode(), queue_id] = end
        write_queue_ends(ends_path(self._root), QueueEnds(position, ends))

    def _receive(self, link: HaLink, known: memoryview) -> None:
        """Take what comes until the connection ends, or the process is told to.

        Args:
            known: what is here already of what was asked for.
        """
        silent_since_ms = self._now_ms()
        reported_ms = silent_since_ms
        while not self._stop.reason:
            now_ms = self._now_ms()
            if now_ms - reported_ms >= SIGN_MS:
                link.report(self._log.durable)
                reported_ms = now_ms
            self._turn(now_ms)
            if not self._waits_for(link, now_ms):
                # Asked here: what is slow may be this side.
                if now_ms - silent_since_ms > HOUSEKEEPING_MS:
                    raise UnreachableError(
                        "nothing comes from the master",
                        address=link.address,
                        limit_ms=HOUSEKEEPING_MS,
                    )
                continue
            parts = link.receive()
            silent_since_ms = self._now_ms()
            size = sum(map(len, parts))
            self._paid_ms = max(self._paid_ms, silent_since_ms) + size * 1_000 // self._rate
            if isinstance(link, ElectedLink):
                self._learn(link)
            for part in parts:
                fresh, known = self._without_known(part, known)
                self._log.take(fresh)
            if self._status.state != FollowingState.FOLLOWING and not known:
                self._enter(FollowingState.FOLLOWING, "")
            if self._log.durable != self._log.end:
                self._made_durable()
                link.report(self._log.durable)
                reported_ms = silent_since_ms
                self._dispatch()

    def _without_known(self, part: memoryview, known: memoryview) -> tuple[memoryview, memoryview]:
        """What of ``part`` is new, and what of ``known`` has not come yet.

        Raises:
            DivergedError: it is not what is here.
        """
        same = min(len(part), len(known))
        if bytes(part[:same]) != bytes(known[:same]):
            raise DivergedError(
                "the master's log is another one: it has other bytes where this one ends. Promote"
                " this folder, or begin with an empty one",
                position=self._log.durable - len(known),
                here=self._log.durable,
            )
        return part[same:], known[same:]

    def _waits_for(self, link: HaLink, now_ms: int) -> bool:
        """Wait until something has come, or something else is due; whether to read."""
        owed_ms = self._paid_ms - now_ms
        if owed_ms > 0:
            # More was taken than the rate allows: the master is left alone until then.
            self._rest(min(owed_ms, TOLD_MS))
            return False
        fds = [link.fileno(), self._stop.fileno()]
        found, _, _ = select.select(fds, [], [], TOLD_MS / 1_000)
        if self._stop.fileno() in found and not self._stop.reason:
            self._stop.drain()
        return link.fileno() in found

    def _made_durable(self) -> None:
        self._log.sync()
        self._change(durable=self._log.durable)

    def _dispatch(self) -> None:
        """Build queues and index up to what is durable."""
        if self._log.is_empty or not self._status.tables_at_ms:
            # Which topics have queues of batches says the table.
            return
        if self._queues is None:
            self._queues = FollowedQueues(
                self._section,
                self._log,
                with_tags=self._note.product >= 5,
                tables_position=self._status.tables_position,
            )
        self._queues.build(self._log.durable)
        self._change(durable=self._log.durable, dispatched=self._queues.position)

    def _close_queues(self) -> None:
        if self._queues is not None:
            self._queues.flush()
            self._queues.close()
            self._queues = None

    def _turn(self, now_ms: int) -> None:
        """What is due beside the log: tables, checkpoint, flush, status."""
        self._look_at_round(now_ms)
        if now_ms >= self._told_due_ms:
            self._told_due_ms = now_ms + TOLD_MS
            self._tell()

    def _look_at_round(self, now_ms: int) -> None:
        """Take what a round of questions has brought, and begin the next one."""
        job = self._round
        if job is None:
            if now_ms >= self._round_due_ms:
                self._round = self._asking.submit(
                    self._tables.follow, self._status.remoting, self._log.durable
                )
                self._round_counts = True
            return
        if not job.done():
            return
        self._round, self._round_due_ms = None, now_ms + TABLES_MS
        try:
            found = job.result()
        except (ProtocolError, UnreachableError) as error:
            self._change(trouble=str(error))
            return
        self._round_due_ms = now_ms + max(TABLES_MS, TABLES_PAUSE * found.took_ms)
        if not self._round_counts:
            return
        if self._queues is not None and batch_topics(self._root) != self._queues.of_batches:
            # By the position of the round before: only since then may one have been made.
            self._close_queues()
            self._dispatch()
        self._change(
            master_end=found.reach.end,
            tables_at_ms=found.at_ms,
            tables_position=found.position,
            missing="; ".join(found.missing),
            trouble="",
        )
        if self._queues is None:
            self._dispatch()

    def _tell(self) -> None:
        """Write checkpoint and status, and begin to make durable what is derived."""
        if not self._log.is_empty:
            self._log.note_durable()
        if self._queues is not None:
            self._queues.begin_flush()
        self._change(told_at_ms=epoch_ms(self._clock))
        write_status(self._root, self._status)

    def _finish(self) -> None:
        """Make everything durable, as a node does at its stop."""
        if self._queues is not None:
            self._queues.flush()
        self._enter(FollowingState.ENDED, "")
        self._tell()

    def _turn_away(self, error: LedgerError) -> None:
        self._enter(FollowingState.AWAY, str(error))
        reason = str(error) if isinstance(error, DiskFullError) else ""
        try:
            self._tell()
        except DiskFullError as full:
            reason = str(full)
        if reason and not self._is_full:
            logger.warning("understudy waits for space on the disk: %s", reason)
        self._is_full = bool(reason)

    def _enter(self, state: FollowingState, trouble: str) -> None:
        if state != self._status.state:
            if trouble:
                logger.warning("understudy is %s: %s", state, trouble)
            else:
                logger.info("understudy is %s: position=%d", state, self._log.durable)
            self._change(state=state, since_ms=epoch_ms(self._clock))
        self._change(trouble=trouble)

    def _change(self, **values: object) -> None:
        self._status = replace(self._status, **values)  # type: ignore[arg-type]

    def _rest(self, wait_ms: int) -> None:
        """Wait, unless told to stop."""
        found, _, _ = select.select([self._stop.fileno()], [], [], wait_ms / 1_000)
        if found and not self._stop.reason:
            self._stop.drain()

    def _now_ms(self) -> int:
        return self._clock.monotonic_ns() // NS_PER_MS
