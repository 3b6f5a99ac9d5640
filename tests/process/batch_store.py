"""A plain store of RocketMQ 5 with a batch topic, whose queues nobody has built yet."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ledgermq.formats.records.message import (
    COMPRESSED,
    INNER_BATCH,
    NEED_UNWRAP,
    Message,
    encode_message,
)
from tests.plain_codecs import BatchItem, encode_batch

FILE_SIZE = 262_144
TOPIC = "batched"
TAGS = ("red", "green")
_BLANK = 0xCBD43194
_NOW_MS = 1_700_000_000_000
_HOST = ("10.0.0.1", 4711)


class Stored(NamedTuple):
    """A message as consumers are to see it."""

    queue_offset: int
    body: bytes
    tag: str
    number: str


def write_batch_store(
    root: Path,
    *,
    records: int = 300,
    body: int = 3_000,
    ahead: int = 0,
    file_size: int = FILE_SIZE,
    forged: bytes = b"",
) -> list[Stored]:
    """Write log and table; the messages of queue 0 of the topic, by offset.

    There are records of up to five messages, single ones among them, and ones of another topic, of
    which ``ahead`` stand before all others.

    Args:
        forged: in the place of the batches, compressed: as no client sends them.
    """
    chance = random.Random(47)
    found: list[Stored] = []
    log, plain = bytearray(), ahead
    for number in range(ahead):
        log = _with(log, file_size, 0, "orders", number, body=b"order %d" % number)
    for number in range(records):
        count = chance.randrange(6)
        offset, items = len(found), []
        for _ in range(max(count, 1)):
            content = b"%06d-" % len(found) + chance.randbytes(body)
            one = Stored(len(found), content, TAGS[len(found) % 2], str(len(found)))
            found.append(one)
            said = f"TAGS\x01{one.tag}\x02number\x01{one.number}\x02KEYS\x01k{one.number}\x02"
            items.append(BatchItem(0, content, said.encode()))
        inner = f"INNER_NUM\x01{count}\x02INNER_BASE\x01{offset}\x02".encode()
        log = _with(
            log, file_size, number, TOPIC, offset,
            body=(forged or encode_batch(items)) if count else items[0].body,
            properties=inner if count else items[0].properties,
            sys_flag=(NEED_UNWRAP | INNER_BATCH | (COMPRESSED if forged else 0)) if count else 0,
        )  # fmt: skip
        if number % 10 == 0:
            log = _with(log, file_size, number, "orders", plain, body=b"order %d" % plain)
            plain += 1
    for folder in ("commitlog", "config"):
        (root / folder).mkdir(parents=True)
    log = log.ljust(-(-len(log) // file_size) * file_size, b"\0")
    for start in range(0, len(log), file_size):
        path = root / "commitlog" / f"{start:020d}"
        path.write_bytes(log[start : start + file_size])
    rows = {
        name: {
            "topicName": name, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False,
            "attributes": {"queue.type": "BatchCQ"} if name == TOPIC else {},
        }
        for name in (TOPIC, "orders")
    }  # fmt: skip
    table = {"topicConfigTable": rows, "dataVersion": {"counter": 2, "stateVersion": 0,
             "timestamp": _NOW_MS}}  # fmt: skip
    (root / "config" / "topics.json").write_bytes(json.dumps(table).encode())
    return found


def _with(
    log: bytearray, file_size: int, number: int, topic: str, offset: int, *,
    body: bytes | memoryview, properties: bytes = b"", sys_flag: int = 0,
) -> bytearray:  # fmt: skip
    message = Message(
        topic=topic, queue_id=0, body=body, properties=properties, queue_offset=offset,
        physical_offset=len(log), sys_flag=sys_flag, born_timestamp=_NOW_MS, born_host=_HOST,
        store_timestamp=_NOW_MS + number, store_host=_HOST,
    )  # fmt: skip
    record = encode_message(message)
    left = file_size - len(log) % file_size
    if len(record) + 8 > left:
        blank = left.to_bytes(4, "big") + _BLANK.to_bytes(4, "big")
        log += blank.ljust(left, b"\0")
        record = encode_message(replace(message, physical_offset=len(log)))
    log += record
    return log
