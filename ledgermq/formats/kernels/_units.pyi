from ledgermq.formats.kernels.crc32 import Crc32

def measure_units(
    units: memoryview,
    sizes: memoryview,
    around: int,
    added: int,
    body_max: int,
    properties_max: int,
    size_max: int,
) -> tuple[int, int, int]: ...
def write_units(
    units: memoryview,
    records: bytearray,
    sizes: memoryview,
    count: int,
    hole: int,
    head: bytes,
    topic: bytes,
    added: bytes,
    crc32: Crc32,
) -> None: ...
