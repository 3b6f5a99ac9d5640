"""Tokens of HTTP: a file of names, tokens and what each may do, read as a whole."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path

from ledgermq.model.errors import ConfigError
from ledgermq.observer.callers import HttpCaller
from ledgermq.rules.tables.archives import is_mirror_name
from ledgermq.wire.session import ADMIN, ANY_USER, LOOKS, SPOKEN_SIZE_MAX

SIZE_MIN = 32
"""Characters of a token: one that is guessed is no token."""

FILE_SIZE_MAX = 64 * 1024

COPIES = "mirror"
"""The word of a mirror's token."""

_SETTING = "http.tokens_file"


class Tokens:
    """Callers by the digest of their token: how long a look-up takes tells nothing of it."""

    def __init__(self, callers: dict[bytes, HttpCaller]) -> None:
        self._callers = callers

    @classmethod
    def read(cls, path: Path) -> Tokens:
        """Those of a file: a line each, ``NAME TOKEN [look|user:USER|admin|mirror]``; without the
        third word it is ``look``. Empty lines and # are passed over.

        Raises:
            ConfigError: it cannot be read, others may read it, or a line is none.
        """
        try:
            mode = path.stat().st_mode
            with path.open("rb") as file:
                content = file.read(FILE_SIZE_MAX + 1)
        except OSError as error:
            raise ConfigError(
                "tokens not read", file=str(path), setting=_SETTING, reason=error.strerror
            ) from error
        if mode & stat.S_IRWXO:
            raise ConfigError(
                "tokens may be read by everybody: take that right away",
                file=str(path),
                setting=_SETTING,
                mode=f"{stat.S_IMODE(mode):o}",
            )
        if len(content) > FILE_SIZE_MAX:
            raise ConfigError(
                "too many tokens", file=str(path), setting=_SETTING, limit_bytes=FILE_SIZE_MAX
            )
        callers: dict[bytes, HttpCaller] = {}
        for number, line in enumerate(content.decode("utf-8-sig", "replace").splitlines(), 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            caller = _caller_of(words)
            if caller is None:
                raise ConfigError(
                    f"not a name, a token of at least {SIZE_MIN} characters, and look, user:USER,"
                    " admin or mirror",
                    file=str(path),
                    setting=_SETTING,
                    line=number,
                )
            callers[_digest(words[1])] = caller
        if not callers:
            raise ConfigError("no token", file=str(path), setting=_SETTING)
        return cls(callers)

    def caller_of(self, authorization: str) -> HttpCaller | None:
        """Who sends this header, ``Bearer TOKEN``; None for nobody who is known."""
        scheme, _, token = authorization.partition(" ")
        return self.caller_with(token.strip()) if scheme.lower() == "bearer" else None

    def caller_with(self, token: str) -> HttpCaller | None:
        """Whose token that is; None for nobody's."""
        return self._callers.get(_digest(token))

    def caller_of_digest(self, digest: bytes) -> HttpCaller | None:
        """Whose token has that SHA-256; None for nobody's."""
        return self._callers.get(digest)


def _caller_of(words: list[str]) -> HttpCaller | None:
    """The caller that a line of the file names; None when it names none."""
    if not 2 <= len(words) <= 3 or len(words[1]) < SIZE_MIN or not words[1].isascii():
        return None
    name, right = words[0], words[2] if len(words) == 3 else LOOKS
    kind, _, user = right.partition(":")
    if len(name) > SPOKEN_SIZE_MAX or len(user) > SPOKEN_SIZE_MAX:
        return None
    if right == COPIES:
        return HttpCaller(LOOKS, name, copies=True) if is_mirror_name(name) else None
    if right in (LOOKS, ADMIN) or (kind == ANY_USER and user):
        return HttpCaller(kind, name, user)
    return None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
