"""Admission of a frame as a whole: rights, unanswered bytes, quotas.

Rights once a topic and connection, bytes that are not answered yet, quotas: nothing here looks at a
single message. A frame that is refused stored nothing, and took nothing of a quota.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ledgermq.formats.records.delayed_message import real_queue
from ledgermq.formats.records.message import decode_message, properties_in
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import BusyError
from ledgermq.model.names.transactions import HALF_TOPIC
from ledgermq.model.rights import Right
from ledgermq.process.access_files import AccessFiles
from ledgermq.rules.messages.rate_limits import RateLimits
from ledgermq.sessions.client_rights import AccessGate, ClientRights, Peer
from ledgermq.wire.send_frame import SendFrame
from ledgermq.wire.staged_pack import decode_pack
from ledgermq.writer.admission.delayed_frames import WAITING_TOPICS
from ledgermq.writer.admission.staged_frames import STAGED, Tables

_ON_THE_WAY = WAITING_TOPICS | {HALF_TOPIC.encode(), STAGED}
"""Topics of messages that belong to another one, which each of them names."""


Amount = tuple[int, int]
"""Bytes and records."""


class FrameAdmission:
    """Owned by the writer process.

    A frame goes through ``check``, ``check_real_topics`` and ``admitted``, before the next one.

    Attributes:
        gate: who may connect, and do what.
        denied, throttled: frames refused for want of a right, and of a quota.
        limits: of unanswered bytes, as they were at the start.
        asks: whether anything but windows is looked at: there are users, or quotas.
    """

    def __init__(self, settings: Settings, folder: Path, monotonic_ns: Callable[[], int]) -> None:
        """Rules as the files in ``folder`` have them.

        Raises:
            CorruptLogError, ConfigError, StorageError: a file cannot be read.
        """
        self.limits = settings.limits
        self._now_ns = monotonic_ns
        self._real: tuple[SendFrame, dict[str, Amount]] | None = None
        self._files = AccessFiles(folder)
        self.gate = AccessGate(settings.access, self._files.users)
        self._limits = RateLimits(
            "produce", self._files.quotas, settings.quotas, now_ns=monotonic_ns()
        )
        self.asks = False
        self._note_rules()

    def reload(self) -> None:
        """Users and quotas have changed.

        Raises:
            CorruptLogError, ConfigError, StorageError: a file cannot be read; what was known stays.
        """
        self._files.reload()
        self._note_rules()

    def take_settings(self, settings: Settings) -> None:
        """The settings were read again: those of access and quotas count from now on."""
        self.gate.take_settings(settings.access)
        self._limits.take_settings(settings.quotas)
        self._note_rules()

    def _note_rules(self) -> None:
        # With each message: to ask takes four calls.
        self.asks = self.gate.settings.enabled or self._limits.is_on

    def begin_term(self) -> None:
        """This node leads from now on."""
        self._limits.restart(self._now_ns())

    def rights_of(self, peer: Peer) -> ClientRights:
        """What the client at the other end of a connection may do."""
        return ClientRights(self.gate, peer)

    def forget(self, identity: bytes) -> None:
        """The connection has ended."""
        self._limits.forget(identity.hex())

    def check_window(self, frame: SendFrame, *, in_flight: int, total: int) -> None:
        """Refuse a frame for which there is no room now.

        Args:
            in_flight: bytes of the client that are not answered yet.
            total: those of all clients.

        Raises:
            BusyError: names the limit and its setting.
        """
        limits = self.limits
        mine = in_flight + frame.payload_size
        if mine > limits.client_window_bytes:
            raise BusyError(
                "more unanswered bytes of this client than its window",
                bytes=mine,
                limit=limits.client_window_bytes,
                setting="limits.client_window_bytes",
            )
        everybodys = total + frame.payload_size
        if everybodys > limits.total_window_bytes:
            raise BusyError(
                "more unanswered bytes of all clients than the node holds",
                bytes=everybodys,
                limit=limits.total_window_bytes,
                setting="limits.total_window_bytes",
            )

    def check(self, frame: SendFrame, identity: bytes, name: str, rights: ClientRights) -> None:
        """Refuse a frame of a client that may not send it, or not now.

        Raises:
            NoPermissionError: names user and topic.
            QuotaError: names the quota, and how long to wait.
        """
        if self.gate.is_on:
            rights.check_known("send")
            for topic in {run.topic for run in frame.runs} - _ON_THE_WAY:
                rights.check_topic(topic.decode("utf-8", "replace"), Right.PUB)
        if self._limits.is_on:
            topics = [_name(run.topic) for run in frame.runs if run.topic not in _ON_THE_WAY]
            self._limits.check(self._owners(topics, identity, name, rights), self._now_ns())

    def check_real_topics(
        self, frame: SendFrame, payload: memoryview, rights: ClientRights, *, header_size: int
    ) -> None:
        """Refuse half and delayed messages of topics that the client may not send to, or not now.

        Only runs of their queues are looked at, record by record; the records were checked.

        Raises:
            NoPermissionError: names user and topic.
            QuotaError: that of such a topic is used up.
        """
        self._real = None
        if not (self.gate.is_on or self._limits.is_on):
            return
        if _ON_THE_WAY.isdisjoint(run.topic for run in frame.runs):
            return
        real = _by_real_topic(frame, payload, header_size)
        topics = real.keys() - {_name(topic) for topic in _ON_THE_WAY}
        if self.gate.is_on:
            for topic in topics:
                rights.check_topic(topic, Right.PUB)
        if self._limits.is_on:
            self._limits.check([f"topic:{topic}" for topic in topics], self._now_ns())
            self._real = frame, real

    def admitted(self, frame: SendFrame, identity: bytes, name: str, rights: ClientRights) -> None:
        """The frame is let in: it counts."""
        if not self._limits.is_on:
            return
        now_ns, records = self._now_ns(), len(frame.sizes)
        known = self._real
        of_frame = known is not None and known[0] is frame
        amounts = known[1] if known is not None and of_frame else _by_topic(frame)
        self._real = None
        sizes = {f"topic:{topic}": amount for topic, amount in amounts.items()}
        for owner in self._owners(amounts, identity, name, rights):
            size, count = sizes.get(owner, (frame.payload_size, records))
            self._limits.take(owner, size=size, messages=count, now_ns=now_ns)

    def _owners(
        self, topics: Iterable[str], identity: bytes, name: str, rights: ClientRights
    ) -> list[str]:
        user = rights.who.user
        return self._limits.owners(
            user=user, client=name, connection=identity.hex(), topics=set(topics)
        )


def _by_topic(frame: Tables) -> dict[str, Amount]:
    """Bytes and records of each topic; with one topic nothing is cut."""
    topics = {run.topic for run in frame.runs}
    if len(topics) == 1:
        (topic,) = topics
        return {_name(topic): (int(np.sum(frame.sizes)), len(frame.sizes))}
    ends = _ends(frame)
    found: dict[str, tuple[int, int]] = {}
    first = 0
    for run in frame.runs:
        last = first + run.records
        size = int(ends[last - 1]) - (int(ends[first - 1]) if first else 0)
        _add(found, _name(run.topic), size, run.records)
        first = last
    return found


def _by_real_topic(frame: SendFrame, payload: memoryview, header_size: int) -> dict[str, Amount]:
    """Bytes and records of each topic; messages that wait elsewhere count as those of the topic
    that they are for.
    """
    found: dict[str, Amount] = {}
    ends = _ends(frame)
    first = 0
    for run in frame.runs:
        last = first + run.records
        if run.topic not in _ON_THE_WAY:
            size = int(ends[last - 1]) - (int(ends[first - 1]) if first else 0)
            _add(found, _name(run.topic), size, run.records)
            first = last
            continue
        for number in range(first, last):
            size, end = frame.sizes[number], int(ends[number])
            if run.topic == STAGED:
                record = payload[end - size + header_size : end]
                for topic, (rows_size, rows) in _in_pack(record).items():
                    _add(found, topic, rows_size, rows)
                continue
            real = real_queue(properties_in(payload[end - size + header_size : end]))
            _add(found, _name(run.topic) if real is None else real.topic, size, 1)
        first = last
    return found


def _in_pack(record: memoryview) -> dict[str, Amount]:
    """What a pack's rows will be, by their topic."""
    return _by_topic(decode_pack(decode_message(record, check_crc=False).body))


def _add(found: dict[str, Amount], topic: str, size: int, records: int) -> None:
    before = found.get(topic, (0, 0))
    found[topic] = (before[0] + size, before[1] + records)


def _ends(frame: Tables) -> NDArray[np.int64]:
    """Where each record of the payload ends."""
    return np.cumsum(np.frombuffer(frame.sizes, np.uint32), dtype=np.int64)


def _name(topic: bytes) -> str:
    return topic.decode("utf-8", "replace")
