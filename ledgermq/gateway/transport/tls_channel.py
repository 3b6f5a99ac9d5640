"""TLS channel of a connection, as bytes in and bytes out; it owns no socket.

It shares the port with clients in clear: the first byte tells the two apart, for a TLS handshake
begins with 0x16, and a frame with the highest byte of its size, which is 0 or 1.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterable

from ledgermq.model.config.settings import RemotingSection, TlsMode
from ledgermq.model.errors import ConfigError, ProtocolError
from ledgermq.sessions.keys.tls_files import server_context

logger = logging.getLogger(__name__)

HANDSHAKE = 0x16
READ_SIZE = 256 * 1024


def make_context(settings: RemotingSection) -> ssl.SSLContext | None:
    """What connections need for TLS, read from the files now; None where there is none.

    Raises:
        ConfigError: a file cannot be read, or is not what it should be.
    """
    certificate, key = settings.tls_certificate_file, settings.tls_key_file
    if settings.tls_mode is TlsMode.DISABLED or certificate is None or key is None:
        return None
    return server_context(certificate, key, section="remoting")


def read_again(settings: RemotingSection, present: ssl.SSLContext | None) -> ssl.SSLContext | None:
    """What connections need from now on; what they have at ``present`` if that cannot be read."""
    try:
        return make_context(settings)
    except ConfigError as error:
        logger.warning("certificate for TLS stays the one that was read before: %s", error)
        return present


class TlsChannel:
    """One side of one connection.

    Attributes:
        is_ready: both have shaken hands.
        has_ended: the other side has said that nothing more comes.
    """

    __slots__ = ("_incoming", "_outgoing", "_tls", "has_ended", "is_ready")

    def __init__(self, context: ssl.SSLContext, *, is_server: bool = True) -> None:
        """Who is no server begins with ``open(b"")``."""
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=is_server)
        self.is_ready = False
        self.has_ended = False

    def open(self, data: bytes) -> bytes:
        """What the other has written, as far as ``data`` completes it; ``take_sent`` follows.

        Raises:
            ProtocolError: it is no TLS that is taken here.
        """
        self._incoming.write(data)
        parts: list[bytes] = []
        try:
            if not self.is_ready:
                self._tls.do_handshake()
                self.is_ready = True
            while part := self._tls.read(READ_SIZE):
                parts.append(part)
            self.has_ended = True
        except ssl.SSLWantReadError:
            # The rest of it has not come yet.
            return b"".join(parts)
        except ssl.SSLZeroReturnError:
            self.has_ended = True
        except ssl.SSLError as error:
            raise ProtocolError("TLS failed", reason=error.reason or str(error)) from error
        return b"".join(parts)

    def seal(self, parts: Iterable[bytes | memoryview]) -> bytes:
        """What is to be sent for ``parts``; only after something was received."""
        assert self.is_ready, "nothing can be sent before the handshake"
        for part in parts:
            if len(part):
                self._tls.write(part)
        return self._outgoing.read()

    def take_sent(self) -> bytes:
        """What is to be sent of the protocol's own."""
        return self._outgoing.read()
