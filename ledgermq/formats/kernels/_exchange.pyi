from collections.abc import Callable, Mapping, Sequence
from typing import Any

class Exchange:
    is_open: bool
    def __init__(
        self,
        pipeline: object,
        sender: object,
        driver: object,
        *,
        known_routes: Mapping[str, tuple[int, float]],
        topic_bytes: Callable[[str], bytes],
        body_end: int,
        makers: tuple[type, type, type, type, type],
        make_batch: Callable[[int, str, int], Callable[[Any], object]],
        make_tail: Callable[[bytes, bytes, str], bytes],
    ) -> None: ...
    def send(self, topic: str, body: bytes, properties: bytes | None) -> Any: ...
    def send_batch(self, topic: str, bodies: Sequence[Any], properties: bytes | None) -> Any: ...
    def wait_for(self, future: object, timeout: float | None) -> None: ...
    def put(
        self,
        topic: str,
        body: bytes,
        properties: bytes | None,
        callback: Callable[[Any], object],
    ) -> bool: ...
    def put_batch(
        self,
        topic: str,
        bodies: Sequence[Any],
        properties: bytes | None,
        callback: Callable[[Any], object],
    ) -> bool: ...
    def take(self) -> bool: ...

def join_frame(
    frame: object, queue: tuple[bytes, int], parts: list[Any], size: int, future: object
) -> None: ...
