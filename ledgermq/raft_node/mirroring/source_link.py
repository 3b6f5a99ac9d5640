"""HTTPS to the members of a mirror's source: which one is asked, and one bounded answer a question.

Everything here blocks, for a bounded time: it is called in the feed's thread alone.
"""

from __future__ import annotations

import http.client
import io
import json
import logging
import os
import socket
import ssl
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from ledgermq.model.config.settings import MirrorSection
from ledgermq.model.errors import ConfigError, ProtocolError, StorageError
from ledgermq.wire.mirror_frames import (
    ANSWER_SIZE_MAX,
    BODY_SIZE_MAX,
    CONTENT_TYPE,
    NUMBER_MAX,
    PREFIX,
    SourceState,
    split_parts,
)

logger = logging.getLogger(__name__)

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

PROBE_S = 3.0
"""Seconds for a member to say what it is; the next one is asked then. Nothing comes from anybody
meanwhile."""

MARK_S = 5.0
"""Seconds for the leader to take a mark: it makes it an entry of the log."""

SILENCE_S = 10.0
"""An answer of which nothing comes for so long is given up."""

DIGEST_S = 35.0
"""And one about digests: a file is read for it before, and the source takes half a minute."""

COMPARE_S, COMPARE_SOON_S = 30.0, 5.0
"""Members are compared again after this long: one alone may be behind and not know it. Sooner where
the one that is asked says that it hears no leader."""

BEHIND_SIZE = 4 * ANSWER_SIZE_MAX
"""Who lacks more than this of what another member has is not asked."""

TOKEN_SIZE_MAX = 4 * 1024


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


class SourceAnswer(NamedTuple):
    """What a member of the source has answered.

    Attributes:
        state: what it is, and how far.
        frames: what follows.
        size: bytes of the whole body.
    """

    state: SourceState
    frames: list[memoryview]
    size: int


class SourceLink:
    """Members of the source, of which one is asked: who does not lead, while there is one.

    Attributes:
        url: of the one that is asked now; empty: none is.
        check: called with each state; raises where this node may be no mirror of it.
        furthest: the state of the member that was furthest when they were compared last.
    """

    def __init__(self, mirror: MirrorSection) -> None:
        """Nobody is asked yet.

        Raises:
            ConfigError: the token or the certificates cannot be read.
        """
        token = _read_token(mirror.token_file)
        context = _context_of(mirror)
        self._members = [SourceMember(url.rstrip("/"), token, context) for url in mirror.sources]
        self._asked: SourceMember | None = None
        self._asked_before: SourceMember | None = None
        self._left: SourceMember | None = None
        self._marks_at: SourceMember | None = None
        self._compared_at = 0.0
        self.furthest: SourceState | None = None
        self.check: Callable[[SourceState], None] = lambda _state: None

    @property
    def url(self) -> str:
        """URL of the member that is asked now; empty while none is."""
        return "" if self._asked is None else self._asked.url

    def get(self, path: str) -> SourceAnswer:
        """What a member answers to a question of entries, or an offer.

        Raises:
            StorageError: nobody answers, or who is asked refuses.
            ProtocolError: the answer is none.
            ConfigError: the source is not what this node may be a mirror of.
        """
        return self._take("GET", path, None, SILENCE_S)

    def post(self, path: str, body: bytes, *, silence_s: float = SILENCE_S) -> SourceAnswer:
        """What a member answers to questions about files; raises as ``get``."""
        return self._take("POST", path, body, silence_s)

    def mark(self, position: int) -> None:
        """Have the source's retention know what this mirror holds: whoever leads takes it.

        Raises:
            StorageError, ProtocolError: nobody has taken it; why the one that matters has not.
        """
        trouble: StorageError | None = None
        path = f"{PREFIX}/mark?position={position}"
        for member in sorted(self._patient(), key=lambda one: one is not self._marks_at):
            try:
                member.ask("POST", path, body=b"", silence_s=MARK_S)
            except StorageError as error:
                # What the leader says counts more than that others do not lead.
                is_leaders = error.details.get("status") == HTTPStatus.BAD_REQUEST
                trouble = error if is_leaders else trouble or error
            else:
                self._marks_at = member
                return
        assert trouble is not None, "a mirror has a source"
        raise trouble

    def leave(self) -> None:
        """Ask another one next, where there is one."""
        if self._asked is not None:
            self._asked.close()
            self._left, self._asked = self._asked, None

    def close(self) -> None:
        """End all connections."""
        for member in self._members:
            member.close()

    def _take(self, method: str, path: str, body: bytes | None, silence_s: float) -> SourceAnswer:
        member = self._choose()
        content = member.ask(method, PREFIX + path, body=body, silence_s=silence_s)
        answer = self._answer(content)
        age = time.monotonic() - self._compared_at
        if age >= (COMPARE_S if answer.state.hears else COMPARE_SOON_S):
            self._asked = self._left = None
        return answer

    def _answer(self, content: bytes) -> SourceAnswer:
        parts = split_parts(content)
        if not parts:
            raise ProtocolError("empty answer of a source")
        state = SourceState.decode(parts[0])
        self.check(state)
        return SourceAnswer(state, parts[1:], len(content))

    def _choose(self) -> SourceMember:
        """Who is asked now; members are compared where nobody is.

        Raises:
            StorageError, ProtocolError, ConfigError: nobody can be; why the last one cannot.
        """
        if self._asked is not None:
            return self._asked
        self._compared_at = time.monotonic()
        trouble: StorageError | ProtocolError | ConfigError | None = None
        found: list[tuple[SourceMember, SourceState]] = []
        path = f"{PREFIX}/entries?after={NUMBER_MAX}&term=-1&size=1"
        for member in self._patient():
            try:
                state = self._answer(member.ask("GET", path, silence_s=PROBE_S)).state
            except (StorageError, ProtocolError, ConfigError) as error:
                trouble = error
                continue
            found.append((member, state))
        if not found:
            assert trouble is not None, "a mirror has a source"
            raise trouble
        chosen, state = self._best_of(found)
        if chosen is not self._asked_before:
            logger.info("source is asked: url=%s leads=%s", chosen.url, state.leads)
        self._asked = self._asked_before = chosen
        return chosen

    def _best_of(
        self, found: list[tuple[SourceMember, SourceState]]
    ) -> tuple[SourceMember, SourceState]:
        """Who hears a leader, is not far behind, and does not lead; the same as before if it may
        be, and another one than was left: that answers what it is, and nothing else perhaps.
        """
        self.furthest = max((state for _, state in found), key=lambda one: one.position)
        most = self.furthest.position

        def badness(one: tuple[SourceMember, SourceState]) -> tuple[bool, ...]:
            member, state = one
            is_behind = state.position < most - BEHIND_SIZE
            is_left, is_new = member is self._left, member is not self._asked_before
            return is_left, not state.hears, is_behind, state.leads, is_new

        return min(found, key=badness)

    def _patient(self) -> list[SourceMember]:
        """The members that answer; all where none does."""
        return [one for one in self._members if not one.is_lame] or list(self._members)


def _read_token(path: Path | None) -> str:
    assert path is not None, "mirror.token_file is needed with mirror.sources"
    setting = "mirror.token_file"
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(TOKEN_SIZE_MAX + 1)
    except OSError as error:
        raise ConfigError(
            "token of the mirror not read", file=str(path), setting=setting, reason=error.strerror
        ) from error
    if mode & stat.S_IRWXO:
        raise ConfigError(
            "token of the mirror may be read by everybody: take that right away",
            file=str(path),
            setting=setting,
            mode=f"{stat.S_IMODE(mode):o}",
        )
    words = content.split()
    if len(words) != 1 or not words[0].isascii() or len(content) > TOKEN_SIZE_MAX:
        raise ConfigError(
            "not one token, of ASCII and without spaces", file=str(path), setting=setting
        )
    return words[0].decode("ascii")


def _context_of(mirror: MirrorSection) -> ssl.SSLContext | None:
    """What verifies the source's certificates; None where no source has any."""
    if not any(url.startswith("https://") for url in mirror.sources):
        return None
    try:
        context = ssl.create_default_context(
            cafile=None if mirror.ca_file is None else str(mirror.ca_file)
        )
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            "certificates for the mirror's source not read",
            file=str(mirror.ca_file),
            setting="mirror.ca_file",
            reason=str(error),
        ) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
