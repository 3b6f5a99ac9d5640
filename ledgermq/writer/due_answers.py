"""Due answers to producers: what is written and waits for the commit cursor."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.ipc.time_histogram import TimeHistogram, TimeKind
from ledgermq.model.errors import BusyError
from ledgermq.model.ids import Position, Term
from ledgermq.sessions.client_rights import Peer
from ledgermq.sessions.session_server import Session, SessionServer
from ledgermq.wire.header import decode_header
from ledgermq.wire.send_frame import DUPLICATES_VERSION, encode_sent
from ledgermq.writer.log.put_batch import Put


@dataclass(slots=True)
class ProducerSession(Session):
    """Session of a producer, as the writer keeps it.

    Attributes:
        version: of the protocol.
        terms_ended: how many terms of its own the node had ended when the session began.
        is_refused: a frame was refused that may come again; those that were sent behind it must not
            be stored before it.
    """

    version: int = 0
    terms_ended: int = 0
    is_refused: bool = False


@dataclass(slots=True)
class _Owed:
    peer: Peer
    frames: int = 0
    size: int = 0


class Unanswered:
    """Unanswered frames and bytes of producers, by identity: the measure of their windows.

    They outlive the session that they were sent in.

    Attributes:
        total: bytes of all clients.
    """

    def __init__(self) -> None:
        self.total = 0
        self._owed: dict[bytes, _Owed] = {}

    def of(self, identity: bytes, peer: Peer) -> int:
        """Bytes of a client that says HELLO.

        Raises:
            BusyError: answers to another client are due, which had the identity before: they would
                go to this one, and say where the other one's messages are.
        """
        owed = self._owed.get(identity)
        if owed is None:
            return 0
        if owed.peer != peer:
            raise BusyError("answers are due to another client of this identity: say HELLO again")
        return owed.size

    def add(self, identity: bytes, peer: Peer, size: int) -> int:
        """A frame was taken; bytes of its client now."""
        owed = self._owed.get(identity)
        if owed is None:
            owed = self._owed[identity] = _Owed(peer)
        owed.frames += 1
        owed.size += size
        self.total += size
        return owed.size

    def release(self, identity: bytes, size: int) -> int:
        """A frame has its answer; bytes of its client that are left."""
        owed = self._owed[identity]
        owed.frames -= 1
        owed.size -= size
        self.total -= size
        if not owed.frames:
            del self._owed[identity]
        return owed.size


class Due(NamedTuple):
    """An answer that waits for the commit cursor to reach ``position``, since ``since_ns``."""

    position: int
    identity: bytes
    answer: bytes
    size: int
    since_ns: int

    @property
    def request_id(self) -> int:
        """Number of the request that is answered."""
        return decode_header(self.answer).request_id


class DueAnswers:
    """Owned by the writer's ``ProduceService``.

    Invariant: positions in ``waiting`` never decrease.

    Attributes:
        waiting: the oldest first; always the same object.
        ack: what an acknowledgement means, as a SENT has it.
        unanswered: bytes of frames without an answer, those of ``waiting`` among them.
    """

    def __init__(
        self, clients: SessionServer[ProducerSession], page: CursorPage, *, ack: int
    ) -> None:
        """None waits.

        Args:
            page: gets the times that acknowledgements took.
            ack: what an acknowledgement means, as a SENT has it.
        """
        self.waiting: deque[Due] = deque()
        self.unanswered = Unanswered()
        self._clients = clients
        self.ack = ack
        self._times = TimeHistogram(page, TimeKind.ACKNOWLEDGEMENT)

    def note(self, puts: Iterable[Put], term: Term, since_ns: int) -> None:
        """Frames are in the log: their answers wait for the commit cursor.

        Args:
            since_ns: when they were begun with.
        """
        for put in puts:
            duplicates = put.duplicates
            if duplicates and not self._tells_duplicates(put):
                duplicates = ()
            answer = encode_sent(
                put.request_id,
                term=term,
                store_timestamp=put.store_timestamp,
                ack=self.ack,
                spans=put.spans,
                duplicates=duplicates,
            )
            # As in ``LogWriter``: half the price.
            fields = put.position, put.identity, answer, put.size, since_ns
            self.waiting.append(tuple.__new__(Due, fields))

    def acknowledge(self, position: Position) -> None:
        """Answer every frame that is stored before ``position``."""
        waiting, clients, unanswered = self.waiting, self._clients, self.unanswered
        if not waiting or waiting[0].position > position:
            return
        # One moment for all: it is asked for once a turn, and not with each frame.
        now_ns, observe = time.monotonic_ns(), self._times.observe
        while waiting and waiting[0].position <= position:
            _, identity, answer, size, since_ns = waiting.popleft()
            observe(now_ns - since_ns)
            left = unanswered.release(identity, size)
            session = clients.sessions.get(identity)
            # Without a session it would go to who has taken the identity since.
            if session is not None:
                session.in_flight = left
                if not clients.socket.send(identity, [answer]):
                    clients.lose(identity)

    def release(self, identity: bytes, size: int) -> None:
        """The bytes of a frame that has an answer are no more in flight."""
        left = self.unanswered.release(identity, size)
        session = self._clients.sessions.get(identity)
        if session is not None:
            session.in_flight = left

    def take_all(self) -> list[Due]:
        """All that wait: none does any more, and what becomes of them is the caller's to say."""
        waiting = list(self.waiting)
        self.waiting.clear()
        return waiting

    def _tells_duplicates(self, put: Put) -> bool:
        session = self._clients.sessions.get(put.identity)
        return session is not None and session.version >= DUPLICATES_VERSION
