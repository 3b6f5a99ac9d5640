"""Producers' sessions at the writer: frames in, acknowledgements out.

A turn takes a bounded number of frames, checks each, stages them in the log one behind the other
under the put lock, and writes all of them with one call. A frame that is refused stored nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.ipc.counters import WriterCounter
from ledgermq.ipc.cursor_page import Role
from ledgermq.ipc.orders import PackRows
from ledgermq.ipc.page_slots import SpaceState
from ledgermq.members.log_trouble import LogDamagedError, report
from ledgermq.model.config.settings import AckMode, Settings
from ledgermq.model.delay_levels import delay_levels_ms
from ledgermq.model.errors import (
    BusyError,
    CorruptLogError,
    DiskFullError,
    LedgerError,
    MessageIllegalError,
    NotLeaderError,
    OutcomeUnknownError,
    ProtocolError,
    StaleGenerationError,
    StorageError,
)
from ledgermq.model.ids import Position, Term
from ledgermq.model.limits import ENTRY_SIZE_MAX, FRAME_SIZE_MAX
from ledgermq.process.environment import Environment
from ledgermq.sessions.leadership.standing import welcome_of
from ledgermq.sessions.session_server import SessionServer
from ledgermq.store.queues.queue_offsets import QueueOffsets
from ledgermq.wire.header import Kind, decode_header
from ledgermq.wire.send_frame import SendFrame, decode_send
from ledgermq.wire.session import (
    NOT_TOLD,
    Standing,
    decode_hello,
    encode_refused,
    hello_instance,
    hello_version,
)
from ledgermq.writer.admission.frame_admission import FrameAdmission
from ledgermq.writer.admission.record_rules import RecordRules
from ledgermq.writer.admission.writable_topics import WritableTopics
from ledgermq.writer.due_answers import DueAnswers, ProducerSession
from ledgermq.writer.duplicates.missing_records import FramePlan, MissingRecords
from ledgermq.writer.duplicates.recent_messages import RecentMessages
from ledgermq.writer.duplicates.stored_ids import IdsUnknownError
from ledgermq.writer.duplicates.unique_ids import Deduplication, LogReach
from ledgermq.writer.log.log_opening import OpenLog, entry_before
from ledgermq.writer.log.put_batch import PutBatch, append_own, own_records
from ledgermq.writer.log.put_lock import PutLockHolder
from ledgermq.writer.lone_frames import LoneFrames
from ledgermq.writer.retention.space_gate import NoRoomError, SpaceGate


class LentFrames(NamedTuple):
    """What plain frames need; see ``ProduceService.lend``.

    Attributes:
        topics: queues of topics whose messages may come in without more.
        offsets: next offsets of the queues that were used; the service's own.
        client_max, total_max: unanswered bytes, of one client and of all.
        put_lock: see ``PutLockHolder.lend``.
    """

    topics: dict[bytes, int]
    offsets: dict[tuple[bytes, int], int]
    client_max: int
    total_max: int
    put_lock: tuple[int, int, int, int]


class OutOfTurnError(BusyError):
    """A frame was sent before its client could know that an earlier one had been refused."""


_OWN_STATUSES: dict[type[LedgerError], str] = {
    BusyError: "WINDOW_FULL",
    OutOfTurnError: "OUT_OF_TURN",
    IdsUnknownError: "IDS_UNKNOWN",
}

FRAMES_PER_TURN_MAX = 256
BYTES_PER_TURN_MAX = 8 * 1024 * 1024

_ACKS = {AckMode.LOSSY_LEADER: 0, AckMode.MAJORITY_MEMORY: 1, AckMode.MAJORITY_FSYNC: 2}


class ProduceService:
    """Owned by the writer process.

    Attributes:
        due: answers that wait.
    """

    def __init__(
        self,
        environment: Environment,
        log: OpenLog,
        *,
        topics: WritableTopics,
        put_lock: PutLockHolder,
        gate: SpaceGate,
        admission: FrameAdmission,
    ) -> None:
        settings = environment.settings
        self._admission = admission
        self._gate = gate
        self._settings = settings
        self._counters = environment.page.counters(Role.WRITER)
        self._log = log.writer
        self._store_host_size = len(log.store_host)
        self._topics = topics
        self._offsets: QueueOffsets | None = None
        self._put_lock = put_lock
        self._answers_at_once = settings.ack.mode is AckMode.LOSSY_LEADER
        self._body_max = settings.store.max_message_size
        # Java's MessageExtEncoder allows the same 64 KiB beside the body.
        limit = ENTRY_SIZE_MAX if log.writer.header_size else self._body_max + 64 * 1024
        self._record_max = min(log.writer.record_size_max, limit)
        self._asks = False
        self._last_led: int | None = None
        self._terms_ended = 0
        self._open_log = log
        self._first = 0
        self._recent = self._recent_messages()
        self._turn_begin = self._log.end.position
        self._clock = environment.clock
        self._page = environment.page
        self._unique = Deduplication(
            topics,
            settings,
            lambda: environment.page.give_sign(Role.WRITER, environment.clock.monotonic_ns()),
        )
        self._missing = MissingRecords(self._unique, header_size=log.writer.header_size)
        self.socket = environment.produce_socket(
            admission.gate,
            message_size_max=FRAME_SIZE_MAX + 1024 * 1024,
            note_ended=self._note_ended,
        )
        levels = len(delay_levels_ms(settings.store.message_delay_level)) - 1
        self._rules = RecordRules(
            topics,
            levels=levels,
            header_size=log.writer.header_size,
            store_host_size=self._store_host_size,
            record_max=self._record_max,
            body_max=self._body_max,
        )
        generation = environment.page.read_process(Role.WRITER).generation
        self._clients = SessionServer[ProducerSession](
            self.socket,
            self._counters,
            WriterCounter,
            settings.limits,
            welcome=welcome_of(settings, generation, delay_levels=levels),
            statuses=_OWN_STATUSES,
            forget=admission.forget,
        )
        self.due = DueAnswers(self._clients, environment.page, ack=_ACKS[settings.ack.mode])
        self._lone = LoneFrames(
            self._clients, self._counters, self._rules, admission, gate=gate, due=self.due
        )

    def begin_term(self, offsets: QueueOffsets) -> None:
        """This node leads: number messages from ``offsets`` on."""
        self._offsets = offsets
        self._unique.forget()
        self._admission.begin_term()

    def end_term(self) -> None:
        """Another node leads: what is not answered yet may be in the log one day, or never."""
        self._offsets = None
        error = OutcomeUnknownError("node leads no more; send again with the same ids")
        for answer in self.due.take_all():
            self._refuse(answer.identity, answer.request_id, error)
            self.due.release(answer.identity, answer.size)

    def tell_standing(self, standing: Standing) -> None:
        """Tell all clients what this node is in its group now, if that is something else.

        To be called after a grant before frames are taken: what a client sent in an earlier term of
        this node, and another leader may have stored meanwhile, must find its session ended.
        """
        before = self._clients.standing
        if standing == before:
            return
        self._turn_begin = self._log.end.position
        self._clients.tell_standing(standing, self._position_told(standing))
        if before.leads and (not standing.leads or standing.term != before.term):
            self._terms_ended += 1
        if standing.leads:
            # Between two terms that follow one another nobody else can have led.
            if self._last_led is not None and standing.term > self._last_led + 1:
                for identity in list(self._clients.sessions):
                    session = self._clients.sessions.get(identity)
                    if session is not None and session.terms_ended < self._terms_ended:
                        self._clients.end(identity)
            self._last_led = standing.term

    def take_settings(self, settings: Settings) -> None:
        """The settings were read again: those of access and quotas count from now on."""
        self._admission.take_settings(settings)
        self._clients.take_limits(settings.limits)

    def begin_following(self) -> None:
        """Entries of another leader come next; the log may have been cut."""
        self._recent = self._recent_messages()

    def forget_before(self, position: Position) -> None:
        """The log is about to begin at ``position``; nothing before it is read any more."""
        self._first = int(position)
        self._recent.forget_before(position)
        self._unique.let_go()

    def note_entries(self, count: int, entries: memoryview) -> None:
        """Take note of ``count`` entries of another leader, appended to one file; the view is valid
        during the call.
        """
        self._counters[WriterCounter.ENTRIES] += count
        try:
            self._recent.follow(self._log.end.position, entries)
        except CorruptLogError as error:
            raise self._trouble(error) from error

    def take_frames(self, term: Term | None) -> bool:
        """Take what producers have sent, a bounded number; true when the log has grown.

        Args:
            term: the granted one, when the tables are those of all in it; without one every frame
                is refused.
        """
        self._counters[WriterCounter.TURNS] += 1
        if term is None or self._offsets is None:
            self._refuse_waiting()
            return False
        begin = self._log.end
        self._turn_begin = begin.position
        self._missing.begin_turn()
        batch = PutBatch(self._log, self._offsets, term=term, now_ns=self._clock.epoch_ns)
        with self._put_lock:
            try:
                size = taken = 0
                while size < BYTES_PER_TURN_MAX and taken < FRAMES_PER_TURN_MAX:
                    parts = self.socket.receive()
                    if parts is None:
                        break
                    taken += 1
                    size += self._lone.take(parts, batch) or self._stage_frame(batch, parts, term)
                self.due.note(batch.publish(), term, self._put_lock.since_ns)
            except StorageError as error:
                # It may have the ids of messages that are not stored.
                self._unique.forget()
                refusal = self._gate.strike(error) if isinstance(error, DiskFullError) else error
                for put in batch.take_back(error):
                    self._refuse_admitted(put.identity, put.request_id, put.size, refusal)
        # In this mode the write alone is promised: nothing waits for the commit cursor.
        if self._answers_at_once:
            self.due.acknowledge(self._log.end.position)
        return self._log.end != begin

    def append_own(
        self,
        records: Sequence[bytes | PackRows],
        term: Term,
        *,
        has_reserve: bool,
        written: Callable[[], None],
    ) -> None:
        """Append records that the node writes for itself; see ``own_entries``.

        Raises:
            MessageIllegalError: one is larger than the log takes, or a pack cannot be read; nothing
                has changed.
            DiskFullError: there is no space; nothing has changed.
        """
        assert self._offsets is not None, "an entry of a node that does not lead"
        header_size = self._log.header_size
        group = own_records(records, self._open_log.paths.log, header_size=header_size)
        largest = max(max(part.sizes) for part in group)
        if largest > self._record_max:
            raise MessageIllegalError("record is too large", size=largest, limit=self._record_max)
        batch = PutBatch(self._log, self._offsets, term=term, now_ns=self._clock.epoch_ns)
        begin = int(self._log.end.position)
        try:
            append_own(batch, group, self._put_lock, has_reserve=has_reserve, written=written)
        except DiskFullError as error:
            self._gate.strike(error)
            raise
        try:
            self._unique.note_own(begin, int(self._log.end.position), batch.store_timestamp)
        except CorruptLogError as error:
            raise self._trouble(error) from error

    def lend(self) -> LentFrames | None:
        """What plain frames of local clients need, for who does with them what ``take_frames``
        does, and then calls ``take_back``; None where more is asked of frames than is looked at for
        them.
        """
        if (
            self._offsets is None
            or self._answers_at_once
            or self._admission.asks
            or self._topics.windows
        ):
            return None
        self._turn_begin = self._log.end.position
        limits = self._admission.limits
        return LentFrames(
            self._topics.plain,
            self._offsets.known,
            limits.client_window_bytes,
            limits.total_window_bytes,
            self._put_lock.lend(),
        )

    def take_back(self, taken: int) -> None:
        """The put lock was taken so often now."""
        self._put_lock.take_back(taken)

    def note_slow_put(self, held_ns: int) -> None:
        """The put lock was held for long."""
        self._put_lock.note_slow(held_ns)

    @property
    def clients(self) -> SessionServer[ProducerSession]:
        """The producers' sessions."""
        return self._clients

    @property
    def form(self) -> tuple[int, int, int, int]:
        """What a lone frame has to be like; see ``read_plain``."""
        return self._lone.form

    @property
    def store_host(self) -> bytes:
        """This node's address, as it is on disk."""
        return self._open_log.store_host

    def close(self) -> None:
        """Tell the clients that wait that their outcome is unknown, and unbind."""
        error = OutcomeUnknownError("node stops; send again with the same ids")
        for answer in self.due.take_all():
            self._clients.send(answer.identity, encode_refused(answer.request_id, error))
        self._clients.close()

    def _admit(self, parts: list[bytes], term: Term | None) -> SendFrame | None:
        """The frame in ``parts`` if it may come in; everything else is answered here."""
        identity = parts[0]
        request_id = 0
        try:
            if len(parts) < 2:
                raise ProtocolError("message without a header", parts=len(parts) - 1)
            header = decode_header(parts[1])
            request_id = header.request_id
            if header.kind is Kind.HELLO:
                self._greet(identity, request_id, parts)
                return None
            session = self._clients.used(identity)
            if header.kind is Kind.GOODBYE:
                self._clients.end(identity)
                return None
            if header.kind is not Kind.SEND or len(parts) != 3:
                raise ProtocolError(
                    "message not taken here: this address is for messages to be stored alone, and"
                    " clients are given the one of listen.consume, which tells them this one",
                    kind=header.kind.name,
                    parts=len(parts) - 1,
                )
            frame = decode_send(parts[1], header)
            if session.is_refused and not frame.is_resumed:
                raise OutOfTurnError("a frame sent before was refused: send again from it on")
            # A refusal below sets it again, if the frame may come again.
            session.is_refused = False
            self._check_frame(frame, parts[2])
            self._admission.check_window(
                frame, in_flight=session.in_flight, total=self.due.unanswered.total
            )
            if term is None:
                raise NotLeaderError(
                    "node does not lead now: nothing was stored"
                    if self._offsets is None
                    else "node begins to lead, and waits for its broker to tell of topics and "
                    "users: nothing was stored",
                    role=self._clients.standing.role,
                    term=self._clients.standing.term,
                    leader=self._clients.standing.leader,
                )
            payload = memoryview(parts[2])
            self._asks = self._admission.asks
            if self._asks:
                self._admission.check(frame, identity, session.name, session.rights)
            self._rules.check(frame, payload, self._now_ms())
            if self._asks:
                self._admission.check_real_topics(
                    frame, payload, session.rights, header_size=self._log.header_size
                )
        except LedgerError as error:
            self._refuse(identity, request_id, error)
            return None
        return frame

    def _check_frame(self, frame: SendFrame, payload: bytes) -> None:
        """What concerns the frame as a whole."""
        if len(payload) != frame.payload_size:
            raise ProtocolError(
                "payload of another size than announced",
                size=len(payload),
                expected=frame.payload_size,
            )
        expected = (self._log.header_size, self._store_host_size)
        if (frame.entry_header_size, frame.store_host_size) != expected:
            raise StaleGenerationError(
                "frame made for another log: say HELLO again",
                entry_header_size=frame.entry_header_size,
                store_host_size=frame.store_host_size,
                expected=expected,
            )
        checksum = crc32(payload, crc32(frame.tables, 0))
        if checksum != frame.checksum:
            raise ProtocolError(
                "checksum of the frame differs", checksum=frame.checksum, computed=checksum
            )

    def _stage_frame(self, batch: PutBatch, parts: list[bytes], term: Term) -> int:
        """Stage the frame in ``parts``, or answer what they are; bytes of what was taken."""
        frame = self._admit(parts, term)
        if frame is None:
            return 0
        self._admitted(parts[0], frame)
        try:
            known = 0
            if (frame.is_retry or self._topics.windows) and self._missing.concerns(frame):
                known = self._put_missing(batch, parts[0], parts[2], frame)
            else:
                self._make_room(batch, frame.sizes)
                batch.stage(parts[0], frame.request_id, parts[2], frame.sizes, frame.runs)
        except (NoRoomError, NotLeaderError, OutcomeUnknownError, IdsUnknownError) as error:
            self._refuse_admitted(parts[0], frame.request_id, frame.payload_size, error)
            return 0
        except DiskFullError as error:
            # While what came before was written: it is refused with that, if it is a part of it.
            if not batch.has_staged(parts[0], frame.request_id):
                refusal = self._gate.strike(error)
                self._refuse_admitted(parts[0], frame.request_id, frame.payload_size, refusal)
            raise
        self._counters[WriterCounter.MESSAGES] += len(frame.sizes) - known
        self._counters[WriterCounter.BYTES] += frame.payload_size
        self._counters[WriterCounter.FRAMES] += 1
        return frame.payload_size

    def _make_room(self, batch: PutBatch, sizes: memoryview) -> None:
        """Have blocks for a frame of such records.

        Raises:
            NotLeaderError: another member is about to lead: there is no room here.
            NoRoomError: there is no room, and no other leader.
        """
        if self._gate.state is not SpaceState.ROOMY:
            self._gate.check()
        try:
            batch.make_room(sizes)
        except DiskFullError as error:
            raise self._gate.strike(error) from error

    def _put_missing(
        self, batch: PutBatch, identity: bytes, payload: bytes, frame: SendFrame
    ) -> int:
        """Store what the log lacks of a frame, and answer for all of it; how much it had."""
        try:
            plan = self._plan_missing(batch, payload, frame)
            if not plan.is_new:
                # What is written with it would be answered for by the same answer.
                self._publish(batch)
            if plan.missing.records:
                self._stage_missing(batch, identity, plan)
            if plan.is_new:
                return 0
            stored = batch.publish()
        except CorruptLogError as error:
            trouble = self._trouble(error)
            if isinstance(trouble, LogDamagedError):
                raise trouble from error
            # Nobody else has the log. Whether these were stored is not known; others are served.
            self._refuse_admitted(identity, frame.request_id, frame.payload_size, trouble)
            return len(frame.sizes)
        own = stored[0] if stored else None
        put = self._missing.finish(plan, identity, own, end=self._log.end.position)
        known = len(frame.sizes) - plan.missing.records
        self._counters[WriterCounter.RESENT_FOUND] += plan.resent
        self._counters[WriterCounter.DUPLICATES] += known - plan.resent
        self.due.note([put], batch.term, self._put_lock.since_ns)
        return known

    def _plan_missing(self, batch: PutBatch, payload: bytes, frame: SendFrame) -> FramePlan:
        """What the log lacks of a frame; what is staged is written where it may have a part."""
        # The first attempt may have come in this very turn, and be staged only: ``recent`` finds
        # what is written.
        if frame.is_retry:
            self._publish(batch)
            self._recent.extend(self._log.end.position)
        log = LogReach(int(batch.published_end), self._page.read_dispatched().position)
        search = self._missing.search(frame, payload, now_ms=batch.store_timestamp, log=log)
        if search is not None and not search.is_written:
            self._publish(batch)
        log = log._replace(end=int(batch.published_end))
        return self._missing.plan(
            frame, payload, search, recent=self._recent, log=log, now_ms=batch.store_timestamp
        )

    def _stage_missing(self, batch: PutBatch, identity: bytes, plan: FramePlan) -> None:
        missing = plan.missing
        try:
            self._make_room(batch, missing.sizes)
        except (NoRoomError, NotLeaderError) as error:
            if not plan.resent:
                raise
            raise OutcomeUnknownError(
                "a part of the frame is stored, and there is no space for the rest",
                cause=str(error),
            ) from error
        spans = batch.stage(
            identity, plan.frame.request_id, missing.payload, missing.sizes, missing.runs
        )
        self._missing.note(plan, spans, batch.store_timestamp)

    def _publish(self, batch: PutBatch) -> None:
        """Write what is staged; its answers wait for the commit cursor."""
        self.due.note(batch.publish(), batch.term, self._put_lock.since_ns)

    def _trouble(self, error: CorruptLogError) -> CorruptLogError:
        """What to raise when the log cannot be read: a member of a group notes the damage."""
        end = self._log.end
        return report(self._settings, error, last=(end.position, end.index_, end.term))

    def _refuse_waiting(self) -> None:
        """Answer what waits while nothing can be stored, a bounded number."""
        for _ in range(FRAMES_PER_TURN_MAX):
            parts = self.socket.receive()
            if parts is None:
                return
            self._admit(parts, None)

    def _recent_messages(self) -> RecentMessages:
        log = self._open_log
        return RecentMessages(
            log.paths.data,
            file_size=log.recovered.data.file_size,
            header_size=self._log.header_size,
            first=max(int(log.recovered.first), self._first),
            window=self._settings.limits.total_window_bytes,
            end=self._log.end.position,
            entry_before=partial(entry_before, log),
        )

    def _admitted(self, identity: bytes, frame: SendFrame) -> None:
        session = self._clients.sessions.get(identity)
        assert session is not None, identity
        if self._asks:
            self._admission.admitted(frame, identity, session.name, session.rights)
        unanswered = self.due.unanswered
        session.in_flight = unanswered.add(identity, session.rights.peer, frame.payload_size)

    def _greet(self, identity: bytes, request_id: int, parts: list[bytes]) -> None:
        """Begin a session, or begin it anew."""
        hello, peer = self._clients.hello(parts), self.socket.peer
        name, instance = decode_hello(hello), hello_instance(hello)
        known = self._clients.sessions.get(identity)
        is_known = known is not None and known.rights.peer == peer
        if not is_known:
            self._clients.end(identity)
        in_flight = self.due.unanswered.of(identity, peer)
        self.socket.greet(identity)
        if known is None or not is_known or known.instance != instance:
            fresh = ProducerSession(
                name,
                self._admission.rights_of(peer),
                instance,
                in_flight,
                version=hello_version(hello),
                terms_ended=self._terms_ended,
            )
            if known is not None and is_known:
                fresh.is_refused, fresh.terms_ended = known.is_refused, known.terms_ended
            self._clients.begin(identity, fresh)
        self._clients.welcome(
            identity,
            request_id,
            version=hello_version(hello),
            position=self._position_told(self._clients.standing),
        )

    def _position_told(self, standing: Standing) -> int:
        """What is sent from now on stands behind it; what is staged does not count yet."""
        return int(self._turn_begin) if standing.leads else NOT_TOLD

    def _refuse(self, identity: bytes, request_id: int, error: LedgerError) -> None:
        session = self._clients.sessions.get(identity)
        if error.retriable and session is not None:
            session.is_refused = True
        record = error.details.get("record")
        self._clients.refuse(
            identity, request_id, error, record=record if isinstance(record, int) else None
        )

    def _refuse_admitted(
        self, identity: bytes, request_id: int, size: int, error: LedgerError
    ) -> None:
        """Refuse a frame whose bytes were counted already."""
        self.due.release(identity, size)
        self._refuse(identity, request_id, error)

    def _now_ms(self) -> int:
        return self._clock.epoch_ns() // 1_000_000

    def _note_ended(self) -> None:
        """A connection was ended because it held too much, or too many were open."""
        self._counters[WriterCounter.CONNECTIONS_ENDED] += 1
