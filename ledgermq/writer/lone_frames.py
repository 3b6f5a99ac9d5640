"""Short way of a lone frame: one message, nothing to refuse, from its parts into the log.

Most producers that wait for each message send such frames, and what a single message costs is the
number of calls (docs/decisions/0038). The general way remains the
truth: this one takes what the general way would take, does with it what that would do, and says no
to everything else with nothing changed.
"""

from __future__ import annotations

from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.kernels.kernel import read_plain
from ledgermq.ipc.counters import Counts, WriterCounter
from ledgermq.ipc.page_slots import SpaceState
from ledgermq.model.limits import FRAME_SIZE_MAX
from ledgermq.sessions.session_server import SessionServer
from ledgermq.writer.admission.frame_admission import FrameAdmission
from ledgermq.writer.admission.record_rules import RecordRules
from ledgermq.writer.due_answers import DueAnswers, ProducerSession
from ledgermq.writer.log.put_batch import PutBatch
from ledgermq.writer.retention.space_gate import SpaceGate

LONE_PARTS = 3
"""Identity, header with tables, record."""


class LoneFrames:
    """Owned by the writer's ``ProduceService``.

    Attributes:
        form: what a frame has to be like; see ``read_plain``.
    """

    def __init__(
        self,
        clients: SessionServer[ProducerSession],
        counters: Counts,
        rules: RecordRules,
        admission: FrameAdmission,
        *,
        gate: SpaceGate,
        due: DueAnswers,
    ) -> None:
        """All of it is the service's, and shared with its general way."""
        self._clients = clients
        self._sessions = clients.sessions
        self._socket = clients.socket
        self._counters = counters
        header_size, host_size, record_max, body_max = rules.form
        self.form = header_size, host_size, min(record_max, FRAME_SIZE_MAX), body_max
        self._topics = rules.topics
        self._admission = admission
        self._gate = gate
        self._unanswered = due.unanswered

    def take(self, parts: list[bytes], batch: PutBatch) -> int:
        """Check and stage the frame in ``parts``.

        Returns:
            its bytes; 0: it has to go the general way, and nothing has changed.
        """
        if len(parts) != LONE_PARTS:
            return 0
        identity, head, payload = parts
        session, admission, size = self._sessions.get(identity), self._admission, len(payload)
        if session is None or session.is_refused or admission.asks:
            return 0
        peer, own = self._socket.peer, session.rights.peer
        limits, topics, unanswered = admission.limits, self._topics, self._unanswered
        if (
            (own is not peer and own != peer)
            or topics.windows
            or self._gate.state is not SpaceState.ROOMY
            or session.in_flight + size > limits.client_window_bytes
            or unanswered.total + size > limits.total_window_bytes
        ):
            return 0
        found = read_plain(head, payload, *self.form, 1, crc32)
        if found is None:
            return 0
        request_id, _, ((_, queue_id, topic),) = found
        if queue_id >= topics.plain.get(topic, 0) or not batch.stage_one(
            identity, request_id, payload, size, topic=topic, queue_id=queue_id
        ):
            return 0
        if identity in self._clients.placed:
            self._clients.used(identity)
        session.in_flight = unanswered.add(identity, own, size)
        counters = self._counters
        counters[WriterCounter.MESSAGES] += 1
        counters[WriterCounter.BYTES] += size
        counters[WriterCounter.FRAMES] += 1
        return size
