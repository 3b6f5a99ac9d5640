def link_keys(
    slots: memoryview,
    key_hashes: memoryview,
    key_rows: memoryview,
    first: int,
    last: int,
    positions: memoryview,
    store_times: memoryview,
    index_count: int,
    begin_time: int,
    items: memoryview,
    heads: memoryview,
) -> int: ...
def set_slots(
    slots: memoryview,
    key_hashes: memoryview,
    first: int,
    last: int,
    index_count: int,
) -> None: ...
