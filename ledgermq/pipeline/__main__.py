"""``python -m ledgermq.pipeline JOB``, also for ``spark-submit``: ``ledgermq spark JOB``."""

from __future__ import annotations

import sys

from ledgermq.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["spark", *sys.argv[1:]]))
