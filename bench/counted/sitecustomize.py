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
from pathlib import Path
from types import FrameType

# Beside this module, in the folder that is in front of the path.
from call_counts import CallCounts  # type: ignore[import-not-found]

_counts = CallCounts()


def _toggle(_number: int, _frame: FrameType | None) -> None:
    if sys.getprofile() is None:
        _counts.take()
        sys.setprofile(_counts)
        return
    sys.setprofile(None)
    named = _counts.take()
    path = Path(os.environ["LEDGERMQ_BENCH_CALLS"], f"{os.getpid()}.json")
    whole = path.with_suffix(".part")
    whole.write_text(json.dumps(named))
    whole.rename(path)


if "LEDGERMQ_BENCH_CALLS" in os.environ:
    signal.signal(signal.SIGUSR2, _toggle)
