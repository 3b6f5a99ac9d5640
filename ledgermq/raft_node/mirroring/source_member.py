"""Member of a mirror's source: a question over HTTPS, and an answer bounded in size and time."""

from __future__ import annotations

import http.client
import io
import json
import socket
import ssl
import time
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ledgermq.model.errors import ProtocolError, StorageError
from ledgermq.wire.mirror_frames import BODY_SIZE_MAX, CONTENT_TYPE

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

ANSWER_S = 60.0
"""An answer that is not whole by then is given up, and less is asked for next."""

LAME_S = 120.0
"""Who did not answer is left out for so long, where another one does: it costs its silence."""

_BODY_READ_SIZE = 256 * 1024
_REASON_SIZE = 4 * 1024


_Question = tuple[str, str, bytes | None]
_Answered = tuple[http.client.HTTPResponse, bytes]


class SourceMember:
    """One member, by its URL; its connection is opened when it is asked. Everything blocks."""

    def __init__(self, url: str, token: str, context: ssl.SSLContext | None) -> None:
        """Nothing is asked yet.

        Args:
            context: verifies its certificate, where the URL says ``https``.
        """
        parts = urlsplit(url)
        assert parts.hostname is not None, url
        self.url = url
        self._host = parts.hostname
        self._port = parts.port
        self._is_tls = parts.scheme == "https"
        self._headers = {"authorization": f"Bearer {token}"}
        self._context = context
        self._open: http.client.HTTPConnection | None = None
        self._silent_at: float | None = None

    @property
    def is_lame(self) -> bool:
        """Whether it did not answer when it was asked last, which was not long ago."""
        return self._silent_at is not None and time.monotonic() < self._silent_at + LAME_S

    def ask(self, method: str, path: str, *, body: bytes | None = None, silence_s: float) -> bytes:
        """The body of the answer.

        Args:
            silence_s: an answer of which nothing comes for so long is given up.

        Raises:
            StorageError: it does not answer, or not in time; or it refuses: ``status`` of the
                details is that of HTTP then.
            ProtocolError: what it answers is none, or too large.
        """
        question = (method, path, body)
        try:
            answer, content = self._answer(question, silence_s)
        except (OSError, http.client.HTTPException) as error:
            self._silent_at = time.monotonic()
            raise StorageError(
                "source does not answer",
                errno=getattr(error, "errno", None),
                source=self.url,
                reason=str(error) or type(error).__name__,
            ) from error
        self._silent_at = None
        if answer.status not in (HTTPStatus.OK, HTTPStatus.NO_CONTENT):
            raise StorageError(
                "source refuses", source=self.url, status=answer.status, reason=_reason_in(content)
            )
        is_ours = answer.getheader("content-type") == CONTENT_TYPE
        if answer.status == HTTPStatus.OK and not is_ours:
            raise ProtocolError("answer of a source is of another kind", source=self.url)
        return content

    def close(self) -> None:
        """End the connection."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _answer(self, question: _Question, silence_s: float) -> _Answered:
        if self._open is not None:
            # The member may have closed it since, as at its restart: that says nothing of it now.
            with suppress(ConnectionError):
                return self._exchange(self._open, question, silence_s)
        return self._exchange(self._connect(), question, silence_s)

    def _exchange(
        self, connection: http.client.HTTPConnection, question: _Question, silence_s: float
    ) -> _Answered:
        method, path, body = question
        self._open = None
        connection.timeout = silence_s
        try:
            if connection.sock is not None:
                connection.sock.settimeout(silence_s)
            connection.request(method, path, body=body, headers=self._headers)
            answer = connection.getresponse()
            content = _read(answer, self.url)
            self._open = connection
        finally:
            if self._open is None:
                connection.close()
        return answer, content

    def _connect(self) -> http.client.HTTPConnection:
        made: http.client.HTTPConnection
        if self._is_tls:
            assert self._context is not None
            made = http.client.HTTPSConnection(self._host, self._port, context=self._context)
        else:
            made = http.client.HTTPConnection(self._host, self._port)
        made.response_class = _TimedAnswer
        return made


class _TimedAnswer(http.client.HTTPResponse):
    """An answer that is whole, its head too, within ``ANSWER_S``, however slowly it trickles."""

    def __init__(
        self,
        sock: socket.socket,
        debuglevel: int = 0,
        method: str | None = None,
        url: str | None = None,
    ) -> None:
        super().__init__(sock, debuglevel, method, url)
        self.fp = io.BufferedReader(_TimedReads(sock, self.fp.detach()))


class _TimedReads(io.RawIOBase):
    """Reads of a socket, none of which waits for longer than the whole answer may."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase) -> None:
        self._sock = sock
        self._raw = raw
        self._silence_s = sock.gettimeout() or ANSWER_S
        self._until = time.monotonic() + ANSWER_S

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        """Bytes that have come, at least one unless it is the end.

        Raises:
            TimeoutError: none comes, or the answer takes too long.
        """
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"not whole after {ANSWER_S:.0f} s")
        self._sock.settimeout(min(self._silence_s, left))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        """End it."""
        self._raw.close()
        super().close()


def _read(answer: http.client.HTTPResponse, url: str) -> bytes:
    """The whole body, which says before how long it is."""
    length = answer.getheader("content-length", "")
    if answer.status == HTTPStatus.NO_CONTENT:
        length = "0"
    is_number = length.isascii() and length.isdecimal() and len(length) < 20
    if not is_number or int(length) > BODY_SIZE_MAX:
        raise ProtocolError(
            "answer of a source is too long, or does not say how long",
            source=url,
            length=length[:32],
            limit=BODY_SIZE_MAX,
        )
    left, parts = int(length), []
    while left:
        part = answer.read(min(left, _BODY_READ_SIZE))
        if not part:
            raise http.client.IncompleteRead(b"", left)
        parts.append(part)
        left -= len(part)
    # Of nothing http.client reads nothing, and would not know that the answer is over.
    answer.read()
    return b"".join(parts)


def _reason_in(content: bytes) -> str:
    """What a refusal says in words."""
    try:
        document = json.loads(content[:_REASON_SIZE])
        return str(document["detail"])[:500]
    except (ValueError, KeyError, TypeError, RecursionError):
        return content[:200].decode("utf-8", "replace").strip()
