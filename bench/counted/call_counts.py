"""Counts of calls in the threads that have them as their profile function, by name."""

from __future__ import annotations

from collections import Counter
from types import CodeType, FrameType


class CallCounts:
    """For ``sys.setprofile``; threads may share one, and lose one call of some thousands."""

    def __init__(self) -> None:
        self._counted: Counter[object] = Counter()

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """One more call, of a function or of a builtin."""
        if event == "call":
            self._counted[frame.f_code] += 1
        elif event == "c_call":
            # By name: a bound method would keep alive what is to be closed.
            self._counted[getattr(argument, "__qualname__", argument)] += 1

    def take(self) -> Counter[str]:
        """What was called since the last time: functions with their file and line, builtins."""
        counted, self._counted = self._counted, Counter()
        named: Counter[str] = Counter()
        for called, times in counted.items():
            named[_name(called)] += times
        return named


def _name(called: object) -> str:
    if isinstance(called, CodeType):
        return f"{called.co_filename}:{called.co_firstlineno}:{called.co_qualname}"
    return str(called)
