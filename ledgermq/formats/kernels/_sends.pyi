from ledgermq.formats.kernels.crc32 import Crc32

def scan_send(
    span: memoryview, start: int, end: int, wanted: int
) -> tuple[int, int, int, str, str, int, int, int, int, int, bytes] | None: ...
def send_record(
    head: bytes,
    hole: int,
    queue_id: int,
    flag: int,
    flags: int,
    born: int,
    times: int,
    body: memoryview,
    topic: bytes,
    properties: bytes,
    words: bytes,
    dropped: bytes,
    added: bytes,
    properties_max: int,
    crc32: Crc32,
) -> bytearray | None: ...
