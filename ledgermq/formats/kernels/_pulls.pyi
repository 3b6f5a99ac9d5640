def choose_units(
    units: memoryview,
    hashes: memoryview,
    fulfilling: memoryview,
    first_position: int,
    disk_below: int,
    memory_size: int,
    memory_count: int,
    disk_size: int,
    disk_count: int,
    positions: memoryview,
    sizes: memoryview,
) -> tuple[int, int, int, int, int]: ...
def match_heads(
    span: memoryview,
    positions: memoryview,
    sizes: memoryview,
    base: int,
    header_size: int,
    starts: memoryview,
) -> int: ...
def join_records(span: memoryview, starts: memoryview, sizes: memoryview) -> bytearray: ...
