from collections.abc import Hashable
from typing import Any

class SteadyLine:
    state: Any
    first: int
    last: int
    reply: bytes | None
    wants: list[tuple[str, int, int]]
    commit: int
    more: bool
    def __init__(
        self,
        state: object,
        follower: object,
        idle: object,
        granted: object,
        replicate: object,
    ) -> None: ...
    def receive(
        self, now: int, source: Hashable, data: bytes | memoryview, has_entries: bool
    ) -> bool: ...
    def written(self, index: int) -> bool: ...
    def held(self, index: int) -> bool: ...
    def replicated(self, peer: Hashable, first: int, last: int, size: int) -> bytes | None: ...
