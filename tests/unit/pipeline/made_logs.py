"""Logs of all kinds of records, as bytes, and pieces of them in memory."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

from ledgermq.formats.dledger_entry import HEADER_SIZE
from ledgermq.formats.records.message import PROPERTIES_SIZE, Message, encode_message
from ledgermq.formats.records.properties import decode_properties
from ledgermq.model.ids import Index, Position, Term
from tests.plain_codecs import encode_entry

BLANK_MAGIC = b"\xcb\xd4\x31\x94"
HOSTS = (("10.0.0.1", 1_234), ("10.0.0.2", 10_911), ("2001:db8::7", 4_567))
STORED_MS = 1_600_000_000_000


class Written(NamedTuple):
    """A message that is to be in a log.

    Attributes:
        properties: as they stand there, whatever they are.
    """

    topic: str
    queue_id: int
    body: bytes
    properties: bytes = b""
    born_host: tuple[str, int] = HOSTS[0]
    sys_flag: int = 0
    flag: int = 0
    later_ms: int = 1

    def found_by(self) -> set[str]:
        """What it is found by."""
        found = decode_properties(self.properties)
        keys = {key for key in found.get("KEYS", "").split(" ") if key}
        return keys | {found["UNIQ_KEY"]} if found.get("UNIQ_KEY") else keys


class MadeLog(NamedTuple):
    """Bytes of one file of a log, from position ``base`` on, and what is in it."""

    content: bytes
    base: int
    header_size: int
    messages: tuple[Message, ...]
    written: tuple[Written, ...]

    def of_queue(self, topic: str, queue_id: int) -> list[Message]:
        """Messages of a queue, in their order."""
        return [one for one in self.messages if (one.topic, one.queue_id) == (topic, queue_id)]

    def record(self, message: Message) -> bytes:
        """Its bytes in the log, with the header of its entry."""
        begin = message.physical_offset - self.base - self.header_size
        return self.content[begin : begin + self.header_size + message.size]


def made_log(
    written: list[Written], *, entries: bool = True, base: int = 0, blank: bytes | None = None
) -> MadeLog:
    """A log of these messages.

    Args:
        blank: what stands behind the mark that ends the file; None: the file does not end.
    """
    content, chain, stored = b"", 0, STORED_MS
    offsets: dict[tuple[str, int], int] = {}
    messages = []
    header_size = HEADER_SIZE if entries else 0
    for number, one in enumerate(written):
        queue = one.topic, one.queue_id
        stored += one.later_ms
        message = Message(
            topic=one.topic,
            queue_id=one.queue_id,
            body=one.body,
            flag=one.flag,
            sys_flag=one.sys_flag,
            queue_offset=offsets.get(queue, 0),
            physical_offset=base + len(content) + header_size,
            born_timestamp=stored - 5,
            born_host=one.born_host,
            store_timestamp=stored,
            store_host=HOSTS[1],
        )
        offsets[queue] = message.queue_offset + 1
        record = encode_message(message)
        # The size of the properties, and they, as they are wanted.
        record = record[:-2] + PROPERTIES_SIZE.pack(len(one.properties)) + one.properties
        record = len(record).to_bytes(4, "big") + record[4:]
        messages.append(_sized(message, len(record), one.properties))
        if not entries:
            content += record
            continue
        entry = encode_entry(
            record,
            index=Index(number),
            term=Term(1 + number // 3),
            position=Position(base + len(content)),
            previous_chain_crc=chain,
        )
        chain = int.from_bytes(entry[36:40], "big")
        content += entry
    if blank is not None:
        size = (8 + len(blank)).to_bytes(4, "big")
        content += (b"\xff\xff\xff\xff" + size if entries else size + BLANK_MAGIC) + blank
    return MadeLog(content, base, header_size, tuple(messages), tuple(written))


def _sized(message: Message, size: int, properties: bytes) -> Message:
    values = {name: getattr(message, name) for name in Message.__slots__}
    return Message(**{**values, "size": size, "properties": properties})


TOPICS = ("orders", "stock", "%RETRY%billing", "Bestände", "a" * 127)
_VALUES = st.text(
    st.characters(exclude_characters="\x01\x02", codec="utf-8"), min_size=1, max_size=9
)


@st.composite
def property_bytes(draw: st.DrawFn) -> bytes:
    """Properties as clients write them, as old ones did, and as nobody should."""
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return draw(st.binary(max_size=40))
    names = draw(st.lists(st.sampled_from(("KEYS", "TAGS", "UNIQ_KEY", "a", "ü")), max_size=4))
    pairs = [f"{name}\x01{draw(_VALUES)}" for name in names]
    return ("\x02".join(pairs) + ("\x02" if kind == 1 and pairs else "")).encode()


WRITTEN = st.builds(
    Written,
    topic=st.sampled_from(TOPICS),
    queue_id=st.integers(0, 3),
    body=st.binary(max_size=60) | st.just(b'{"order": 1}' * 9),
    properties=property_bytes(),
    born_host=st.sampled_from(HOSTS),
    sys_flag=st.sampled_from((0, 1, 8, 64)),
    flag=st.integers(-(1 << 31), (1 << 31) - 1),
    later_ms=st.integers(-3, 2_000),
)
"""Messages of all kinds."""


class Memory:
    """``Ranges`` in memory, which counts what is asked of it."""

    def __init__(self, content: bytes, name: str = "piece") -> None:
        self.content = content
        self.name = name
        self.size = len(content)
        self.reads = 0

    def read(self, start: int, end: int) -> bytes:
        """What is there."""
        self.reads += 1
        return self.content[start:end]
