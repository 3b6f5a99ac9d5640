from ledgermq.formats.kernels.crc32 import Crc32

def use_native_crc32(address: int) -> None: ...
def measure_rows(
    sizes: memoryview,
    body_bounds: memoryview,
    property_bounds: memoryview,
    drawn: bytes,
    first: int,
    count: int,
    environment: int,
    id_size: int,
    body_max: int,
    properties_max: int,
    size_max: int,
) -> tuple[int, int, int]: ...
def write_rows(
    out: bytearray,
    sizes: memoryview,
    bodies: memoryview,
    body_bounds: memoryview,
    properties: memoryview,
    property_bounds: memoryview,
    flags: memoryview,
    drawn: bytes,
    first: int,
    count: int,
    hole: int,
    head: bytes,
    topic: bytes,
    id_prefix: bytes,
    number: int,
    crc32: Crc32,
) -> None: ...
def spread_records(payload: memoryview, sizes: memoryview, hole: int, out: bytearray) -> None: ...
