"""Tokens of recent retries and deletions of groups, by which a repeated request is known.

Whoever asks again is told that it is done, and nothing is stored again.

Each act has a token that the client draws. It stands in a command behind the message that was
stored, so that whoever knows the token knows that the message is in the log. Tokens are not part of
a snapshot, nor of a file: a broker that starts reads the commands of the last minutes again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

KEPT_MS = 300_000
"""Longer than any client waits for an answer."""

KEPT_MAX = 65_536
TOKEN_SIZE_MAX = 64


class MessageGivenBack(NamedTuple):
    """A message was given back, and what it became is in the log before this command.

    Or a group was deleted by this very command.
    """

    token: str


class GivenBackTokens:
    """The tokens of the last minutes, by the time of their commands.

    Invariant: at most ``KEPT_MAX``, the oldest first.
    """

    def __init__(self) -> None:
        self._times: OrderedDict[str, int] = OrderedDict()

    def __contains__(self, token: str) -> bool:
        return token in self._times

    def __len__(self) -> int:
        return len(self._times)

    def note(self, token: str, at_ms: int) -> None:
        """Know ``token``; forget those that are too old, or too many."""
        times = self._times
        times[token] = at_ms
        times.move_to_end(token)
        while times:
            oldest = next(iter(times))
            if len(times) <= KEPT_MAX and times[oldest] >= at_ms - KEPT_MS:
                return
            del times[oldest]
