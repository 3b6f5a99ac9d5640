"""HTTPS to the members of a mirror's source: which one is asked, and one bounded answer a question.

Everything here blocks, for a bounded time: it is called in the feed's thread alone.
"""

from __future__ import annotations

import logging
import os
import ssl
import stat
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from ledgermq.model.config.settings import MirrorSection
from ledgermq.model.errors import ConfigError, ProtocolError, StorageError
from ledgermq.raft_node.mirroring.source_member import SourceMember
from ledgermq.wire.mirror_frames import (
    ANSWER_SIZE_MAX,
    NUMBER_MAX,
    PREFIX,
    SourceState,
    split_parts,
)

logger = logging.getLogger(__name__)

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
