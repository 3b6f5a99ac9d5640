from collections.abc import Sequence

class SteadyWait:
    address: int

    def __init__(
        self,
        cells: memoryview,
        owner: object,
        places: object,
        descriptors: object,
        *,
        waits_for_sync: bool,
    ) -> None: ...
    def wait(self, epoll: int, wait_ms: int) -> Sequence[tuple[int, int]]: ...
    def step(self, now_ns: int, is_fed: bool, heard: list[object]) -> bool: ...
    def lend(
        self, line: object, run: int, told: int, durable_seen: int, feed: int, ring: object
    ) -> None: ...
    def lend_led(
        self,
        led: object,
        followers: object,
        marks: object,
        plain: object,
        local: int,
        ready: object,
        uses: Sequence[int],
    ) -> None: ...
    def lend_log(
        self,
        leader: str,
        connection: object,
        verify: object,
        wake: object,
        end: object,
        file_size: int,
        data: object,
        items: object,
        marks: Sequence[tuple[int, int]],
    ) -> None: ...
    def close(self) -> None: ...
