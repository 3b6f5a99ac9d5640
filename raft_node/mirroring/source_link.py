"""HTTPS to the members of a mirror's source: which one is asked, and one bounded answer a question.

Everything here blocks, for a bounded time: it is called in the feed's thread alone.
"""

from __future__ import annotations

import http.client
import json
import logging
import ssl
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from ledgermq.model.config.settings import MirrorSection
from ledgermq.model.errors import ConfigError, ProtocolError, StorageError
from ledgermq.wire.mirror_frames import (
    BODY_SIZE_MAX,
    CONTENT_TYPE,
    NUMBER_MAX,
    PREFIX,
    SourceState,
    split_parts,
)

logger = logging.getLogger(__name__)

PROBE_S = 5.0
"""For who is asked what it is; the next one is asked then."""

SILENCE_S = 10.0
"""An answer of which nothing comes for so long is given up."""

ANSWER_S = 60.0
"""An answer that is not whole by then is given up, and less is asked for next."""

AGAIN_S = 30.0
"""Members are compared again after this long where the one that is asked leads, or is behind."""

_BODY_READ_SIZE = 256 * 1024
_REASON_SIZE = 4 * 1024


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


class _Member:
    """One member, by its URL; its connection is opened when it is asked."""

    def __init__(self, url: str, token: str, context: ssl.SSLContext | None) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None, url
        self.url = url
        self._host = parts.hostname
        self._port = parts.port
        self._is_tls = parts.scheme == "https"
        self._headers = {"authorization": f"Bearer {token}"}
        self._context = context
        self._open: http.client.HTTPConnection | None = None

    def ask(self, method: str, path: str, *, body: bytes | None = None, silence_s: float) -> bytes:
        """The body of the answer.

        Raises:
            StorageError: it does not answer, or not in time; or it refuses: ``status`` of the
                details is that of HTTP then.
            ProtocolError: what it answers is none, or too large.
        """
        connection = self._open or self._connect(silence_s)
        self._open = None
        until = time.monotonic() + ANSWER_S
        is_whole = False
        try:
            if connection.sock is not None:
                connection.sock.settimeout(silence_s)
            connection.request(method, path, body=body, headers=self._headers)
            answer = connection.getresponse()
            content = _read(answer, self.url, until)
            is_whole = True
        except (OSError, http.client.HTTPException) as error:
            raise StorageError(
                "source does not answer",
                errno=getattr(error, "errno", None),
                source=self.url,
                reason=str(error) or type(error).__name__,
            ) from error
        finally:
            if is_whole:
                self._open = connection
            else:
                connection.close()
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

    def _connect(self, silence_s: float) -> http.client.HTTPConnection:
        if self._is_tls:
            assert self._context is not None
            return http.client.HTTPSConnection(
                self._host, self._port, timeout=silence_s, context=self._context
            )
        return http.client.HTTPConnection(self._host, self._port, timeout=silence_s)


class SourceLink:
    """Members of the source, of which one is asked: who does not lead, while there is one.

    Attributes:
        url: of the one that is asked now; empty: none is.
        best: the highest committed index that any has told.
    """

    def __init__(self, mirror: MirrorSection) -> None:
        """Nobody is asked yet.

        Raises:
            ConfigError: the token or the certificates cannot be read.
        """
        token = _read_token(mirror.token_file)
        context = _context_of(mirror)
        self._members = [_Member(url.rstrip("/"), token, context) for url in mirror.sources]
        self._asked: _Member | None = None
        self._compare_at = 0.0
        self.best = -1
        self.check: Callable[[SourceState], None] = lambda _state: None

    @property
    def url(self) -> str:
        """See the class."""
        return "" if self._asked is None else self._asked.url

    def get(self, path: str) -> SourceAnswer:
        """What a member answers to a question of entries, or an offer.

        Raises:
            StorageError: nobody answers, or who is asked refuses.
            ProtocolError: the answer is none.
            ConfigError: the source is not what this node may be a mirror of.
        """
        return self._take("GET", path, None)

    def post(self, path: str, body: bytes) -> SourceAnswer:
        """What a member answers to questions about files; raises as ``get``."""
        return self._take("POST", path, body)

    def mark(self, position: int) -> None:
        """Have the source's retention know what this mirror holds: whoever leads takes it.

        Raises:
            StorageError, ProtocolError: nobody has taken it; why the one that matters has not.
        """
        trouble: StorageError | None = None
        for member in self._members:
            try:
                member.ask(
                    "POST", f"{PREFIX}/mark?position={position}", body=b"", silence_s=PROBE_S
                )
            except StorageError as error:
                # What the leader says counts more than that others do not lead.
                is_leaders = error.details.get("status") == HTTPStatus.BAD_REQUEST
                trouble = error if is_leaders else trouble or error
            else:
                return
        assert trouble is not None, "a mirror has a source"
        raise trouble

    def leave(self) -> None:
        """Ask another one next, where there is one."""
        if self._asked is not None:
            self._asked.close()
            # Behind all others.
            self._members.remove(self._asked)
            self._members.append(self._asked)
            self._asked = None

    def close(self) -> None:
        """End all connections."""
        for member in self._members:
            member.close()

    def _take(self, method: str, path: str, body: bytes | None) -> SourceAnswer:
        member = self._choose()
        content = member.ask(method, PREFIX + path, body=body, silence_s=SILENCE_S)
        answer = self._answer(content)
        is_worse = answer.state.leads or answer.state.index < self.best
        if is_worse and time.monotonic() >= self._compare_at:
            self._asked = None
        return answer

    def _answer(self, content: bytes) -> SourceAnswer:
        parts = split_parts(content)
        if not parts:
            raise ProtocolError("empty answer of a source")
        state = SourceState.decode(parts[0])
        self.check(state)
        self.best = max(self.best, state.index)
        return SourceAnswer(state, parts[1:], len(content))

    def _choose(self) -> _Member:
        """Who is asked now; members are compared where nobody is.

        Raises:
            StorageError, ProtocolError, ConfigError: nobody can be; why the last one cannot.
        """
        if self._asked is not None:
            return self._asked
        self._compare_at = time.monotonic() + AGAIN_S
        trouble: StorageError | ProtocolError | ConfigError | None = None
        found: list[tuple[bool, int, int]] = []
        for number, member in enumerate(self._members):
            path = f"{PREFIX}/entries?after={NUMBER_MAX}&term=-1&size=1"
            try:
                state = self._answer(member.ask("GET", path, silence_s=PROBE_S)).state
            except (StorageError, ProtocolError, ConfigError) as error:
                trouble = error
                continue
            found.append((state.leads, -state.index, number))
        if not found:
            assert trouble is not None, "a mirror has a source"
            raise trouble
        self._asked = self._members[min(found)[2]]
        logger.info("source is asked: url=%s leads=%s", self._asked.url, min(found)[0])
        return self._asked


def _read(answer: http.client.HTTPResponse, url: str, until: float) -> bytes:
    """The whole body, which says before how long it is."""
    length = answer.getheader("content-length", "")
    if answer.status == HTTPStatus.NO_CONTENT:
        length = "0"
    if not length.isdecimal() or int(length) > BODY_SIZE_MAX:
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
        if time.monotonic() > until:
            raise TimeoutError(f"not whole after {ANSWER_S:.0f} s")
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


def _read_token(path: Path | None) -> str:
    try:
        token = "" if path is None else path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            "token of the mirror not read",
            file=str(path),
            setting="mirror.token_file",
            reason=str(error),
        ) from error
    if not token or not token.isascii() or len(token.split()) != 1:
        raise ConfigError(
            "not one token, of ASCII and without spaces",
            file=str(path),
            setting="mirror.token_file",
        )
    return token


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
