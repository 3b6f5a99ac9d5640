import socket
from collections.abc import Iterable, Sequence

is_loaded: bool

class SecureContext:
    def __init__(
        self,
        pem: bytes,
        believed: Iterable[bytes],
        protocols: Sequence[str],
        *,
        is_server: bool,
        verify_flags: int,
    ) -> None: ...

class SecureStream:
    descriptor: int
    is_open: bool
    awaits_room: bool
    failure: str

    def __init__(
        self,
        connected: socket.socket,
        context: SecureContext,
        *,
        is_server: bool,
        unsent_max: int,
        part_max: int,
    ) -> None: ...
    @property
    def certificate(self) -> bytes: ...
    @property
    def protocol(self) -> str: ...
    def send(self, first: bytes, second: bytes | None = None) -> bool: ...
    def flush(self) -> None: ...
    def shake_hands(self) -> bool: ...
    def receive(self) -> list[list[memoryview]]: ...
