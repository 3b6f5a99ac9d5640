"""Tokens of those who may look at the node: a file of names and tokens, read as a whole."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path

from ledgermq.model.errors import ConfigError

SIZE_MIN = 32
"""Characters of a token: one that is guessed is no token."""

FILE_SIZE_MAX = 64 * 1024

_SETTING = "http.tokens_file"


class Tokens:
    """Who may look, by the digest of the token: how long a look-up takes tells nothing of it."""

    def __init__(self, names: dict[bytes, str]) -> None:
        self._names = names

    @classmethod
    def read(cls, path: Path) -> Tokens:
        """Those of a file: a line each, ``NAME TOKEN``; empty lines and # are passed over.

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
                file=str(path), setting=_SETTING, mode=f"{stat.S_IMODE(mode):o}",
            )  # fmt: skip
        if len(content) > FILE_SIZE_MAX:
            raise ConfigError(
                "too many tokens", file=str(path), setting=_SETTING, limit_bytes=FILE_SIZE_MAX
            )
        names: dict[bytes, str] = {}
        for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if len(words) != 2 or len(words[1]) < SIZE_MIN or not words[1].isascii():
                raise ConfigError(
                    f"not a name and a token of at least {SIZE_MIN} characters",
                    file=str(path), setting=_SETTING, line=number,
                )  # fmt: skip
            names[_digest(words[1])] = words[0]
        if not names:
            raise ConfigError("no token", file=str(path), setting=_SETTING)
        return cls(names)

    def name_of(self, authorization: str) -> str | None:
        """Who sends this header, ``Bearer TOKEN``; None for nobody who is known."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return None
        return self._names.get(_digest(token.strip()))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
