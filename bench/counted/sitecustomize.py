"""Counter of calls in a process that a benchmark starts: each SIGUSR2 begins or ends a count.

Python imports this module when it begins, for the benchmark puts its folder in front of the path.
Children that are forked later have the handler, too. What was counted is written to the folder
``LEDGERMQ_BENCH_CALLS``, one file a process.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

_counted: Counter[object] = Counter()


def _count(frame: FrameType, event: str, argument: object) -> None:
    if event == "call":
        _counted[frame.f_code] += 1
    elif event == "c_call":
        # By name: a bound method would keep alive what is to be closed.
        _counted[argument.__qualname__] += 1  # type: ignore[attr-defined]


def _name(called: object) -> str:
    if isinstance(called, CodeType):
        return f"{called.co_filename}:{called.co_firstlineno}:{called.co_qualname}"
    return str(called)


def _toggle(_number: int, _frame: FrameType | None) -> None:
    if sys.getprofile() is None:
        _counted.clear()
        sys.setprofile(_count)
        return
    sys.setprofile(None)
    named: Counter[str] = Counter()
    for called, times in _counted.items():
        named[_name(called)] += times
    path = Path(os.environ["LEDGERMQ_BENCH_CALLS"], f"{os.getpid()}.json")
    whole = path.with_suffix(".part")
    whole.write_text(json.dumps(named))
    whole.rename(path)


if "LEDGERMQ_BENCH_CALLS" in os.environ:
    signal.signal(signal.SIGUSR2, _toggle)
