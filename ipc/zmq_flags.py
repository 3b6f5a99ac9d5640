"""ZeroMQ's flags and options as plain integers: an enum costs more than a call that takes it."""

from __future__ import annotations

import zmq

RCVMORE = int(zmq.RCVMORE)
POLLIN, NOBLOCK = int(zmq.POLLIN), int(zmq.NOBLOCK)
MORE = NOBLOCK | int(zmq.SNDMORE)
"""Of a part behind which others come."""
