"""Records as a client sends them, for tests of the writing side."""

from __future__ import annotations

from array import array

from ledgermq.formats.records.message import Message, encode_message
from ledgermq.formats.records.properties import encode_properties

HEADER_SIZE = 48
TOPIC = "orders"
BROKER = ("127.0.0.1", 10_911)


def record(body: bytes, *, queue_id: int = 0, number: int = 0, header_size: int = 48) -> bytes:
    """One record with its entry header hole."""
    message = Message(
        topic=TOPIC,
        queue_id=queue_id,
        body=body,
        properties=encode_properties({"UNIQ_KEY": f"{number:032X}", "TAGS": "TagA"}),
        born_timestamp=1_600_000_000_000 + number,
        born_host=("10.0.0.1", 1_234),
    )
    return bytes(header_size) + encode_message(message)


def frame_of(records: list[bytes]) -> tuple[bytes, memoryview]:
    """Payload and sizes of a frame."""
    return b"".join(records), memoryview(array("I", map(len, records)))
