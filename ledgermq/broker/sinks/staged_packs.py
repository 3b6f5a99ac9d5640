"""Staged packs in their queue, and the records that they become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ledgermq.broker.deliveries.moves import Buffer, Part, check_queue
from ledgermq.broker.reading.readable_store import ReadableStore
from ledgermq.formats.dledger_entry import HEADER_SIZE as ENTRY_HEADER_SIZE
from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.kernels.kernel import check_run
from ledgermq.formats.records.host_address import HOST_V4_SIZE, HOST_V6_SIZE, is_v6
from ledgermq.formats.records.message import decode_message, encode_message
from ledgermq.ipc.orders import PackRows
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import MessageIllegalError
from ledgermq.model.limits import ENTRY_SIZE_MAX
from ledgermq.model.names.queue_name import QueueName
from ledgermq.model.names.stages import Stage
from ledgermq.rules.tables.sinks import QUEUE, stage_of
from ledgermq.wire.staged_pack import StagedPack, decode_pack


class Pack(NamedTuple):
    """What is known of a pack without its rows."""

    stage: Stage
    rows: int
    topics: frozenset[str]
    stored_ms: int


class StagedPacks:
    """Reads packs out of the store of one node; keeps nothing."""

    def __init__(self, store: ReadableStore, settings: Settings) -> None:
        self._store = store
        self._host = (settings.node.broker_ip, settings.node.listen_port)
        self._host_size = HOST_V6_SIZE if is_v6(self._host) else HOST_V4_SIZE

    @property
    def end(self) -> int:
        """Offset behind the last pack that is dispatched."""
        return self._store.bounds(QUEUE).end

    def pack_at(self, offset: int) -> Pack | None:
        """The pack at an offset within the queue's bounds; None when none is there (any more).

        Raises:
            CorruptLogError, ProtocolError: what is there cannot be read.
        """
        units = self._store.units(QUEUE, offset, 1)
        if units is None or len(units) == 0:
            return None
        record = self._store.record_at(int(units["position"][0]))
        if record is None:
            return None
        message = decode_message(record, check_crc=False)
        stage = stage_of(message)
        if stage is None:
            return None
        pack = decode_pack(message.body)
        topics = frozenset(run.topic.decode() for run in pack.runs)
        return Pack(stage, len(pack.sizes), topics, message.store_timestamp)

    def take(self, record: memoryview) -> Sequence[Part]:
        """What the writer is to move of a pack; see ``Moves.taken``.

        A pack whose rows all are what a writer lets in goes as it lies in the log. Any other one
        becomes what ``records_of`` makes of it: who finishes a move that was cut goes by that.
        """
        message = decode_message(record, check_crc=False)
        pack = decode_pack(message.body)
        if pack.store_host_size == self._host_size and _is_sound(pack):
            return [PackRows(message.physical_offset, len(record), len(pack.sizes))]
        return self._records(pack)

    def records_of(self, queue: QueueName, offset: int, record: memoryview) -> Sequence[Buffer]:
        """The records in a pack; see ``Moves.register``."""
        del queue, offset
        return self._records(decode_pack(decode_message(record, check_crc=False).body))

    def _records(self, pack: StagedPack) -> Sequence[Buffer]:
        if pack.store_host_size == self._host_size:
            # A copy: the file that has the pack may be let go of.
            return list(pack._replace(payload=memoryview(bytes(pack.payload))).records())
        # Staged while a node with an address of the other kind led.
        return [
            encode_message(replace(decode_message(one), store_host=self._host))
            for one in pack.records()
        ]


def _is_sound(pack: StagedPack) -> bool:
    """Whether each record is whole, of the queue that its run names, and may be moved there."""
    at = first = 0
    for run in pack.runs:
        try:
            check_queue(run.topic, run.queue_id)
        except MessageIllegalError:
            return False
        fault, _, at = check_run(
            pack.payload,
            at,
            pack.sizes,
            first,
            run.records,
            0,
            pack.store_host_size,
            ENTRY_SIZE_MAX - ENTRY_HEADER_SIZE,
            ENTRY_SIZE_MAX,
            run.queue_id,
            run.topic,
            crc32,
        )
        if fault:
            return False
        first += run.records
    return at == len(pack.payload)
