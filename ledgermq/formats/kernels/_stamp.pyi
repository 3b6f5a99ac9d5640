from ledgermq.formats.kernels.crc32 import Crc32

def use_native_crc32(address: int) -> None: ...
def crc_of(data: memoryview, start: int, end: int) -> int: ...
def check_run(
    payload: memoryview,
    at: int,
    sizes: memoryview,
    first: int,
    count: int,
    header_size: int,
    store_host_size: int,
    size_max: int,
    body_max: int,
    queue_id: int,
    topic: bytes,
    crc32: Crc32,
) -> tuple[int, int, int]: ...
def stamp_run(
    buffer: bytearray,
    at: int,
    sizes: memoryview,
    first: int,
    count: int,
    header_size: int,
    position: int,
    index: int,
    term: int,
    queue_offset: int,
    store_timestamp: int,
    store_host: bytes,
    chain: int,
    items: bytearray,
    items_at: int,
    crc32: Crc32,
) -> int: ...
def verify_span(
    span: memoryview,
    at: int,
    end: int,
    header_size: int,
    position: int,
    index: int,
    term: int,
    chain: int,
    items: bytearray,
    crc32: Crc32,
    sums_bodies: bool = False,
    heads_alone: bool = False,
) -> tuple[int, int, int, int, int, int]: ...
def walk_records(
    span: memoryview, at: int, end: int, header_size: int, tearable_from: int, certain_ms: int
) -> tuple[int, int, int]: ...
def whole_records(
    span: memoryview, starts: memoryview, sizes: memoryview, header_size: int, crc32: Crc32
) -> int: ...
