"""Pack codec: rows that are to become messages, in the body of one message of ``STAGED_TOPIC``.

Layout, little-endian:

    offset  size  field            unit
    0       1     version          1
    1       1     store_host_size  bytes of the records' store host, 8 or 20
    2       2     reserved         0
    4       4     records
    8       4     runs
    12      4     topics_size      bytes
    16      4n    sizes            of each record, bytes
            12r   runs             as in SEND: records, queue id, topic's size
            …     topics           one behind the other
            …     records          as they will stand on disk, without an entry header

What only a leader knows of a record is zero in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from ledgermq.model.errors import ProtocolError
from ledgermq.model.limits import FRAME_RECORDS_MAX
from ledgermq.wire.send_frame import RUN_SIZE, SendRun, decode_runs, encode_tables

VERSION = 1
_HEAD = Struct("<BBHIII")
HEAD_SIZE = _HEAD.size
HOST_SIZES = (8, 20)

assert HEAD_SIZE == 16


class StagedPack(NamedTuple):
    """The tables of a pack; ``sizes`` and ``payload`` are views of what it was decoded from."""

    store_host_size: int
    sizes: memoryview
    runs: list[SendRun]
    payload: memoryview

    def records(self) -> Iterator[memoryview]:
        """The records, in their order."""
        at = 0
        for size in self.sizes:
            yield self.payload[at : at + size]
            at += size


def encode_pack(
    store_host_size: int,
    sizes: bytes | memoryview,
    runs: Sequence[SendRun],
    payload: bytes | bytearray,
) -> bytes:
    """The body of a pack's message.

    Args:
        sizes: of the records, as little-endian 32-bit words.
    """
    head = _HEAD.pack(
        VERSION,
        store_host_size,
        0,
        sum(run.records for run in runs),
        len(runs),
        sum(len(run.topic) for run in runs),
    )
    return b"".join((head, encode_tables(sizes, runs), payload))


def decode_pack(body: bytes | memoryview) -> StagedPack:
    """The pack in the body of a message; that its records are some is not looked at.

    Raises:
        ProtocolError: counts and sizes do not fit one another, or pass a limit.
    """
    if len(body) < HEAD_SIZE:
        raise ProtocolError("pack without a head", size=len(body), minimum=HEAD_SIZE)
    version, host_size, _, records, run_count, topics_size = _HEAD.unpack_from(body)
    if version != VERSION or host_size not in HOST_SIZES:
        raise ProtocolError("pack of another version", version=version, store_host_size=host_size)
    if not 0 < run_count <= records <= FRAME_RECORDS_MAX:
        raise ProtocolError(
            "pack with a wrong number of records or runs",
            records=records,
            runs=run_count,
            limit=FRAME_RECORDS_MAX,
        )
    view = memoryview(body)
    runs_at = HEAD_SIZE + 4 * records
    topics_at = runs_at + RUN_SIZE * run_count
    payload_at = topics_at + topics_size
    if payload_at > len(view):
        raise ProtocolError("pack ends within its tables", size=len(view), expected=payload_at)
    sizes = memoryview(bytes(view[HEAD_SIZE:runs_at])).cast("I")
    runs = decode_runs(view[runs_at:topics_at], view[topics_at:payload_at], records)
    payload = view[payload_at:]
    if sum(sizes) != len(payload):
        raise ProtocolError("pack of another size", size=len(payload), expected=sum(sizes))
    return StagedPack(host_size, sizes, runs, payload)
