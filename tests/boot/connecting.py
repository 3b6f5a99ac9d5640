"""Connects to a port again and again, one question each time, until SIGTERM; then says how it went.

Words: address of the port. Prints JSON: ``refused``, ``answered``, and ``longest_ms``, the longest
time between two answers.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from contextlib import closing

from ledgermq.remoting.codes import RequestCode
from tests.process.remoting_client import RemotingClient

PAUSE_S = 0.005
"""So that one program does not take what the node needs to start."""


def main(address: str) -> None:
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: stopped.append(number))
    refused = answered = 0
    last = time.monotonic()
    longest_s = 0.0
    print("connecting", flush=True)
    while not stopped:
        try:
            with closing(RemotingClient(address)) as client:
                client.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
        except ConnectionRefusedError:
            refused += 1
        except (TimeoutError, ConnectionError):
            # Cut with the process that had accepted it: that is not what is counted.
            pass
        else:
            answered += 1
            longest_s = max(longest_s, time.monotonic() - last)
            last = time.monotonic()
        time.sleep(PAUSE_S)
    print(json.dumps({"refused": refused, "answered": answered, "longest_ms": longest_s * 1_000}))


if __name__ == "__main__":
    main(sys.argv[1])
