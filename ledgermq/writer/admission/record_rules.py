"""Admission of a frame's records, one by one."""

from __future__ import annotations

from functools import cached_property

from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.kernels.kernel import check_run
from ledgermq.formats.records.record_fault import RecordFault
from ledgermq.model.errors import MessageIllegalError, ProtocolError
from ledgermq.writer.admission.delayed_frames import WAITING_TOPICS, DelayRules
from ledgermq.writer.admission.staged_frames import STAGED, Tables, check_packs, check_place
from ledgermq.writer.admission.writable_topics import WritableTopics


class RecordRules:
    """What the log takes of clients.

    Attributes:
        topics: where messages may be sent to.
        form: sizes of entry header and store host, the largest record, and the largest body.
    """

    def __init__(
        self,
        topics: WritableTopics,
        *,
        levels: int,
        header_size: int,
        store_host_size: int,
        record_max: int,
        body_max: int,
    ) -> None:
        """The rules of one log.

        Args:
            levels: how many delay levels there are.
            record_max: bytes of the largest record, its entry header included.
        """
        self.topics = topics
        self.form = header_size, store_host_size, record_max, body_max
        self._header_size = header_size
        self._store_host_size = store_host_size
        self._record_max = record_max
        self._body_max = body_max
        self._delays = DelayRules(
            topics.check, levels=levels, header_size=header_size, record_max=record_max
        )
        self._levels = levels

    @cached_property
    def _of_packs(self) -> RecordRules:
        """The rules of records without an entry header."""
        return RecordRules(
            self.topics,
            levels=self._levels,
            header_size=0,
            store_host_size=self._store_host_size,
            record_max=self._record_max - self._header_size,
            body_max=self._body_max,
        )

    def check(self, frame: Tables, payload: memoryview, now_ms: int) -> None:
        """Refuse a frame with a record that may not be stored where it says.

        Args:
            frame: says where the records of ``payload`` are.
            now_ms: epoch.

        Raises:
            LedgerError: why; ``record`` is the record's number.
        """
        at = 0
        first = 0
        for run in frame.runs:
            begin = at
            check_content = None
            if run.topic in WAITING_TOPICS:
                self._delays.check_place(run)
            elif run.topic == STAGED:
                check_place(run)
            else:
                check_content = self.topics.check(run.topic, run.queue_id)
            fault, record, at = check_run(
                payload,
                at,
                frame.sizes,
                first,
                run.records,
                self._header_size,
                self._store_host_size,
                self._record_max,
                self._body_max,
                run.queue_id,
                run.topic,
                crc32,
            )
            if fault:
                raise self._error(RecordFault(fault), record, frame.sizes[record])
            if check_content is not None:
                check_content(payload[begin:at], frame.sizes, first, self._header_size)
            if run.topic == STAGED:
                check_packs(
                    payload[begin:at],
                    frame.sizes,
                    first=first,
                    header_size=self._header_size,
                    host_size=self._store_host_size,
                    now_ms=now_ms,
                    check=self._of_packs.check,
                )
            else:
                self._delays.check_run(
                    run, payload[begin:], frame.sizes, first=first, now_ms=now_ms
                )
            first += run.records
        if at != len(payload):
            raise ProtocolError("bytes behind the last record", size=len(payload), expected=at)

    def _error(self, fault: RecordFault, record: int, size: int) -> MessageIllegalError:
        """The refusal of a record, with the limit that it may have passed."""
        error = MessageIllegalError(
            f"message not accepted because of its {fault.field}", record=record, size=size
        )
        if fault is RecordFault.SIZE:
            error.details["limit"] = self._record_max
        elif fault is RecordFault.BODY_SIZE:
            error.details["limit"] = self._body_max
            error.details["setting"] = "store.max_message_size"
        return error
