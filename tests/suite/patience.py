"""How long a test waits for what must come, however busy the machine is."""

from __future__ import annotations

PATIENCE_S = 120.0
"""Of one wait for what is promised without a time.

It ends as soon as that is there, so that only a test that fails waits as long. A processor that is
shared with a few others makes tens of seconds of an election or a start; and a test that stands
still has a limit of its own (``limits``).
"""
