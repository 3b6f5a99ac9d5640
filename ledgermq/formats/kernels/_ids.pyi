def text_hash(span: memoryview, start: int, end: int) -> int: ...
def scan_ids(
    span: memoryview,
    starts: memoryview,
    ends: memoryview,
    waiting: memoryview,
    topics: memoryview,
    ids: memoryview,
    id_starts: memoryview,
    id_ends: memoryview,
    topic_starts: memoryview,
    topic_ends: memoryview,
    fields: memoryview,
) -> None: ...
def compare_ids(
    payload: memoryview,
    payload_columns: memoryview,
    span: memoryview,
    span_columns: memoryview,
    queue_ids: memoryview,
    queue_offsets: memoryview,
    store_times: memoryview,
    sameness: memoryview,
) -> None: ...
def find_ids(
    table: memoryview, places: memoryview, wanted: memoryview, found: memoryview
) -> None: ...
def put_ids(
    table: memoryview, places: memoryview, hashes: memoryview, positions: memoryview
) -> int: ...
def find_keys(
    file: memoryview,
    slot_count: int,
    item_count: int,
    begin_time: int,
    hashes: memoryview,
    since: memoryview,
    first: int,
    rows: memoryview,
    positions: memoryview,
    steps_max: int,
    found_max: int,
) -> tuple[int, int]: ...
