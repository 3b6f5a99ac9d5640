"""Check of the small files: checkpoints, marks, and RocketMQ's JSON documents under ``config/``.

The documents have no checksum: of them only that they can be read, their structure, and numbers
that cannot be are told. A digit that became another digit is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ledgermq.formats.config_json import (
    OFFSET_TABLE,
    decode_document,
    is_plain,
    whole_number,
    with_field_names,
)
from ledgermq.formats.findings import (
    FROM_PEER,
    START_MENDS,
    Finding,
    Severity,
)
from ledgermq.formats.store_markers import ABORT_BACKUP, LOCK_CONTENT
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.limits import DELAY_TOPIC
from ledgermq.repair.check.file_family import derived
from ledgermq.store.files.properties_file import decode_dledger_checkpoint
from ledgermq.store.files.small_file import read_file
from ledgermq.store.files.store_checkpoint import decode_checkpoint, encode_checkpoint
from ledgermq.store.queues import dispatch_checkpoint
from ledgermq.store.queues.queue_ends import ends_path, read_queue_ends
from ledgermq.store.recovery import log_checkpoint

TABLES = {
    "topics.json": "topicConfigTable",
    "subscriptionGroup.json": "subscriptionGroupTable",
    "consumerOffset.json": "offsetTable",
    "delayOffset.json": "offsetTable",
    "consumerFilter.json": "filterDataByTopic",
    "lmqConsumerOffset.json": "offsetTable",
}
_NAMES = {"topics.json": "topicName", "subscriptionGroup.json": "groupName"}
_PERMISSION_MAX = 15
_APPLIED = "ledgermqApplied"
"""What our nodes say in RocketMQ's files: which commands of the log are in the table."""

_PUT_RIGHT = "the next start of the node puts it at the queue's end"
_Places = Callable[[Mapping[str, object]], Iterator[tuple[str, tuple[str, int], int]]]
"""Key, queue and offset of each position in a table."""

BY_HAND = "written by hand: a node reads it as RocketMQ does, and writes it anew without comments"
_RESTORE = "put back a copy that is whole; the broker takes the .bak beside it"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """What a whole read of the log has shown.

    Attributes:
        end: position behind the last whole record.
        last_index: of the last entry, -1 in a plain log or an empty one.
        committed_end: position behind the last committed entry, as far as is known.
        last_unit_time: store time of the last message with a queue unit, 0 without one.
        index_times: ``end_timestamp`` of the index files.
        open_end: whether the store was not stopped.
    """

    end: int
    last_index: int
    committed_end: int
    last_unit_time: int
    index_times: frozenset[int]
    open_end: bool


def check_store_checkpoint(root: Path, facts: LogFacts) -> list[Finding]:
    """RocketMQ's ``checkpoint``: times of the last messages on disk."""
    content = read_file(root / "checkpoint")
    if content is None or not content:
        return []
    try:
        found = decode_checkpoint(content, file="checkpoint")
    except CorruptLogError as error:
        return [derived("checkpoint", int(str(error.details["offset"])), error.message)]
    whole = encode_checkpoint(found)
    if whole != content:
        at = next(at for at, byte in enumerate(content) if byte != whole[at])
        return [derived("checkpoint", at, "byte that no field uses is not zero")]
    if facts.open_end:
        return []
    findings = []
    expected = facts.last_unit_time
    # RocketMQ 5 is content with earlier times after a short run; its next start reads more.
    may_be_earlier = (root / ABORT_BACKUP).exists()
    for at, name, value in (
        (0, "time of the log", found.log_timestamp),
        (8, "time of the queues", found.queues_timestamp),
    ):
        if value != expected and not (may_be_earlier and value < expected):
            findings.append(derived("checkpoint", at, f"{name} is wrong", expected, value))
    if found.index_timestamp and found.index_timestamp not in facts.index_times:
        text = "time of the index is that of none of its files"
        findings.append(derived("checkpoint", 16, text, None, found.index_timestamp))
    return findings


def check_marks(root: Path) -> list[Finding]:
    """``abort``, in which RocketMQ 5 has its process id, and ``lock``."""
    findings = []
    for name, expected in (("abort", b""), ("lock", LOCK_CONTENT)):
        content = read_file(root / name)
        is_process = name == "abort" and content is not None and content.isdigit()
        if content not in (None, b"", expected) and not is_process:
            findings.append(
                Finding(Severity.NOTE, name, 0, "content is not RocketMQ's", expected.decode())
            )
    return findings


def check_dledger_checkpoint(name: str, promises: Promises, facts: LogFacts) -> list[Finding]:
    """DLedger's ``checkpoint``, a file called ``name``: committed and last index."""
    content = promises.committed
    if content is None:
        return []
    try:
        found = decode_dledger_checkpoint(content, file=name)
    except CorruptLogError as error:
        return [derived(name, 0, error.message, remedy=START_MENDS)]
    findings = []
    if found.committed > facts.last_index:
        text = "entries that are said to be committed are not there"
        findings.append(
            Finding(Severity.DAMAGE, name, 0, text, found.committed, facts.last_index, FROM_PEER)
        )
    if found.committed < 0 and found.end < 0 <= facts.last_index:
        # Killed before the first one was written: it promises nothing.
        findings.append(Finding(Severity.NOTE, name, 0, "says nothing of the log's entries"))
        return findings
    if not facts.open_end and found.committed < 0 <= facts.last_index:
        findings.append(derived(name, 0, "no committed index", remedy=START_MENDS))
    if not facts.open_end and found.end != facts.last_index:
        text = "last index is not that of the log"
        findings.append(derived(name, 0, text, facts.last_index, found.end, START_MENDS))
    return findings


class Promises(NamedTuple):
    """Contents of files that say how far the log reaches, as they were before it was read."""

    committed: bytes | None
    logged: bytes | None
    dispatched: bytes | None


def read_promises(root: Path, dledger: Path | None) -> Promises:
    """Read them; None for a file that is not there."""
    own = root / "ledgermq"
    return Promises(
        None if dledger is None else read_file(dledger / "checkpoint"),
        read_file(own / "log-checkpoint"),
        read_file(own / "dispatch-checkpoint"),
    )


def check_own_checkpoints(promises: Promises, facts: LogFacts) -> list[Finding]:
    """``log-checkpoint`` and ``dispatch-checkpoint``: CRCs, and that the log reaches as far."""
    findings: list[Finding] = []
    content = promises.logged
    if content is not None:
        name = "ledgermq/log-checkpoint"
        found = log_checkpoint.decode(content)
        if found is None:
            findings.append(derived(name, 0, "checkpoint is not whole", remedy=START_MENDS))
        elif found.end.position > facts.end:
            findings.append(_short(name, found.end.position, facts.end))
    content = promises.dispatched
    if content is not None:
        name = "ledgermq/dispatch-checkpoint"
        dispatched = dispatch_checkpoint.decode(content)
        if dispatched is None:
            findings.append(derived(name, 0, "checkpoint is not whole", remedy=START_MENDS))
        elif dispatched.position > facts.end:
            findings.append(_short(name, dispatched.position, facts.end))
        elif not facts.open_end and dispatched.position < facts.committed_end:
            text = "not all that is committed is dispatched"
            findings.append(
                derived(name, 0, text, facts.committed_end, dispatched.position, START_MENDS)
            )
        elif not facts.open_end and 0 < facts.committed_end < dispatched.position:
            # What is committed is noted by the writer, which ends before raft and the dispatcher.
            findings.append(
                Finding(
                    Severity.NOTE,
                    name,
                    0,
                    "more is dispatched than was noted as committed",
                    facts.committed_end,
                    dispatched.position,
                )
            )
    return findings


def check_queue_ends(
    root: Path,
    *,
    log_first: int,
    dispatched: int,
    queue_ends: Mapping[tuple[str, int], int] | None,
) -> list[Finding]:
    """The table of queue ends: its CRC, and that no queue ends before where it once ended.

    Args:
        log_first: the log's first position.
        dispatched: up to where all messages have units.
        queue_ends: queue offset behind the last unit, by topic and queue; None while that moves.
    """
    name = "ledgermq/queue-ends"
    try:
        table = read_queue_ends(ends_path(root))
    except CorruptLogError as error:
        return [derived(name, 0, error.message, remedy=START_MENDS)]
    if table is None or queue_ends is None or not log_first <= table.position <= dispatched:
        return []
    findings = []
    for (topic, queue_id), end in table.ends.items():
        found = queue_ends.get((topic.decode(errors="replace"), queue_id), 0)
        if found < end:
            place = f"consumequeue/{topic.decode(errors='replace')}/{queue_id}"
            text = "queue ends before where it once ended"
            findings.append(Finding(Severity.DERIVED, place, None, text, end, found, START_MENDS))
    return findings


def check_config(
    folder: Path, root: Path, *, queue_ends: Mapping[tuple[str, int], int] | None
) -> list[Finding]:
    """RocketMQ's documents.

    Args:
        queue_ends: queue offset behind the last message, by topic and queue; None while that
            moves.
    """
    findings: list[Finding] = []
    if not folder.is_dir():
        return findings
    for path in sorted(folder.iterdir()):
        plain = path.name.removesuffix(".bak").removesuffix(".tmp")
        if plain not in TABLES:
            if path.name != "keys" and not path.is_dir():
                name = str(path.relative_to(root))
                findings.append(Finding(Severity.NOTE, name, None, "unknown file"))
            continue
        findings += _check_document(path, plain, str(path.relative_to(root)), queue_ends)
    return findings


def live_topics(root: Path) -> frozenset[str] | None:
    """Topics that ``topics.json`` names; None when it does not tell."""
    content = read_file(root / "config" / "topics.json")
    try:
        table = decode_document(content).get("topicConfigTable") if content else None
    except CorruptLogError:
        return None
    return frozenset(table) if isinstance(table, dict) else None


def _check_document(
    path: Path, kind: str, name: str, queue_ends: Mapping[tuple[str, int], int] | None
) -> list[Finding]:
    content = read_file(path)
    if not content:
        # Java has none of its own for a moment, and reads the one before.
        return [] if content is None else [Finding(Severity.NOTE, name, None, "empty document")]
    try:
        document = decode_document(content, file=name)
    except CorruptLogError as error:
        at = int(str(error.details["offset"]))
        reason = error.details.get("reason")
        return [Finding(Severity.DAMAGE, name, at, error.message, None, reason, _RESTORE)]
    by_hand = [] if is_plain(content) else [Finding(Severity.NOTE, name, None, BY_HAND)]
    if document.keys() <= {_APPLIED}:
        # A node has settled where an empty table begins, and nothing came to it yet; or ``null``.
        return by_hand
    document = dict(with_field_names(document, frozenset({TABLES[kind]})))
    table = document.get(TABLES[kind])
    if not isinstance(table, dict):
        text = f"no table {TABLES[kind]}"
        return [Finding(Severity.DAMAGE, name, None, text, None, sorted(document), _RESTORE)]
    faults: list[str] = []
    beyond: list[str] = []
    if kind in _NAMES:
        faults = _table_faults(table, _NAMES[kind])
    elif TABLES[kind] == OFFSET_TABLE:
        faults = _offset_faults(table)
        if queue_ends is not None and kind in _PLACES:
            beyond = _beyond(table, _PLACES[kind], queue_ends)
    return [
        *by_hand,
        *(Finding(Severity.DAMAGE, name, None, fault, remedy=_RESTORE) for fault in faults),
        *(Finding(Severity.DERIVED, name, None, one, remedy=_PUT_RIGHT) for one in beyond),
    ]


def _table_faults(table: Mapping[str, object], name_field: str) -> list[str]:
    faults = []
    for key, row in table.items():
        if not isinstance(row, dict):
            faults.append(f"{key!r} has no settings")
            continue
        if row.get(name_field, key) != key:
            faults.append(f"{key!r} calls itself {row.get(name_field)!r}")
        for field, value in row.items():
            is_number = isinstance(value, int) and not isinstance(value, bool)
            if is_number and value < 0:
                faults.append(f"{field} of {key!r} is {value}")
            if field == "perm" and is_number and value > _PERMISSION_MAX:
                faults.append(f"perm of {key!r} is {value}")
    return faults


def _offset_faults(table: Mapping[str, object]) -> list[str]:
    faults = []
    for key, row in table.items():
        offsets = row if isinstance(row, dict) else {"0": row}
        for queue, offset in offsets.items():
            number = _number(offset)
            if _number(queue) is None or number is None or number < -1:
                faults.append(f"offset of {key!r} queue {queue!r} is {offset!r}")
    return faults


def _number(value: object) -> int | None:
    try:
        return whole_number(value)
    except ValueError:
        return None


def _beyond(
    table: Mapping[str, object], places: _Places, queue_ends: Mapping[tuple[str, int], int]
) -> list[str]:
    """Offsets that are further than their queues."""
    return [
        f"offset {offset} of {key!r} queue {queue[1]}, which ends at {queue_ends.get(queue, 0)}"
        for key, queue, offset in places(table)
        if offset > queue_ends.get(queue, 0)
    ]


def _consumed(table: Mapping[str, object]) -> Iterator[tuple[str, tuple[str, int], int]]:
    for key, row in table.items():
        for queue, offset in row.items() if isinstance(row, dict) else ():
            number, at = _number(queue), _number(offset)
            if number is not None and at is not None:
                yield key, (key.partition("@")[0], number), at


def _delivered(table: Mapping[str, object]) -> Iterator[tuple[str, tuple[str, int], int]]:
    for level, offset in table.items():
        number, at = _number(level), _number(offset)
        if number and at is not None:
            yield level, (DELAY_TOPIC, number - 1), at


_PLACES: Mapping[str, _Places] = {
    "consumerOffset.json": _consumed,
    "lmqConsumerOffset.json": _consumed,
    "delayOffset.json": _delivered,
}


def _short(name: str, expected: int, found: int) -> Finding:
    text = "the log ends before what was durable"
    return Finding(Severity.DAMAGE, name, 0, text, expected, found, FROM_PEER)
