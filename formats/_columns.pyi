def join_slices(
    span: memoryview, starts: memoryview, ends: memoryview, bounds: memoryview, out: memoryview
) -> None: ...
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
