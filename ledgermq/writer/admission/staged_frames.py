"""Admission of packs: the rows that a frame stages for later.

A pack is one message whose body has whole records of other topics (``wire/staged_pack.py``). Each
of them has to pass what the record of any producer's frame has to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ledgermq.formats.records.message import decode_message
from ledgermq.model.errors import (
    LedgerError,
    MessageIllegalError,
    NoPermissionError,
    TopicUnknownError,
)
from ledgermq.model.limits import STAGED_TOPIC
from ledgermq.model.names.transactions import HALF_TOPIC
from ledgermq.rules.tables.sinks import stage_of
from ledgermq.wire.send_frame import SendRun
from ledgermq.wire.staged_pack import StagedPack, decode_pack
from ledgermq.writer.admission.delayed_frames import WAITING_TOPICS

STAGED = STAGED_TOPIC.encode()
_NOT_IN_PACKS = WAITING_TOPICS | {HALF_TOPIC.encode(), STAGED}


class Tables(Protocol):
    """What says where the records of a payload are: a frame, or a pack."""

    @property
    def sizes(self) -> memoryview:
        """Unsigned 32-bit size of each record."""

    @property
    def runs(self) -> list[SendRun]:
        """Records of one queue each."""


CheckRecords = Callable[[Tables, memoryview, int], None]
"""Refuses records without an entry header; tables, payload, epoch ms."""


def check_place(run: SendRun) -> None:
    """Whether packs may be staged in the run's queue, which is one of the staged topic.

    Raises:
        TopicUnknownError: there is no such queue.
    """
    if run.queue_id != 0:
        raise TopicUnknownError(
            "topic has no such queue", topic=STAGED_TOPIC, queue=run.queue_id, queues=1
        )


def check_packs(
    payload: memoryview,
    sizes: memoryview,
    *,
    first: int,
    header_size: int,
    host_size: int,
    now_ms: int,
    check: CheckRecords,
) -> None:
    """Refuse a run of well-formed records that are no packs.

    Args:
        payload: the run's records.
        first: number of the first one in ``sizes``.
        host_size: bytes of a store host as this log has it.
        check: refuses what a pack has; the pack is told besides.

    Raises:
        LedgerError: why; ``record`` is the pack's number, ``row`` that of its record.
    """
    at, number = 0, first
    while at < len(payload):
        try:
            message = decode_message(payload, at + header_size, check_crc=False)
            if stage_of(message) is None:
                raise MessageIllegalError("pack does not say whose it is")
            pack = decode_pack(message.body)
            _check_whole(pack, host_size)
            check(pack, pack.payload, now_ms)
        except LedgerError as error:
            if "record" in error.details:
                error.details["row"] = error.details["record"]
            error.details["record"] = number
            raise
        at += sizes[number]
        number += 1


def _check_whole(pack: StagedPack, host_size: int) -> None:
    if pack.store_host_size != host_size:
        raise MessageIllegalError(
            "records of a pack have another store host",
            store_host_size=pack.store_host_size,
            expected=host_size,
        )
    for run in pack.runs:
        if run.topic in _NOT_IN_PACKS:
            raise NoPermissionError(
                "topic takes no staged rows", topic=run.topic.decode("utf-8", "replace")
            )
