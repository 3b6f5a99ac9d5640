def join_slices(
    span: memoryview,
    starts: memoryview,
    ends: memoryview,
    first: int,
    end: int,
    bounds: memoryview,
    out: memoryview,
) -> None: ...
def read_heads(
    span: memoryview,
    starts: memoryview,
    sizes: memoryview,
    header_size: int,
    base: int,
    fields: memoryview,
    stride: int,
) -> int: ...
def find_other(
    span: memoryview,
    starts: memoryview,
    ends: memoryview,
    names: memoryview,
    bounds: memoryview,
    numbers: memoryview,
) -> int: ...
def split_properties(
    span: memoryview,
    starts: memoryview,
    ends: memoryview,
    first: int,
    bounds: memoryview,
    name_starts: memoryview,
    name_ends: memoryview,
    value_ends: memoryview,
) -> int: ...
def find_property(
    span: memoryview,
    bounds: memoryview,
    name_starts: memoryview,
    name_ends: memoryview,
    wanted: memoryview,
    found: memoryview,
) -> int: ...
