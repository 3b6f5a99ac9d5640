from array import array

from ledgermq.formats.kernels.crc32 import Crc32

def read_plain(
    head: bytes,
    payload: bytes,
    header_size: int,
    host_size: int,
    record_max: int,
    body_max: int,
    records_max: int,
    crc32: Crc32,
) -> tuple[int, memoryview, list[tuple[int, int, bytes]]] | None: ...
def write_record(
    begin: bytes,
    tail: bytes,
    body: bytes,
    number: int,
    born_ms: int,
    hole: int,
    crc32: Crc32,
) -> bytes: ...
def write_batch(
    frame: bytes,
    begin: bytes,
    tail: bytes,
    bodies: list[bytes],
    request_id: int,
    number: int,
    born_ms: int,
    hole: int,
    crc32: Crc32,
) -> tuple[bytearray, array[int]]: ...
