"""The command of the week: ``python -m tests.week --minutes 10``; see docs/testing.md."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import pytest


def main() -> int:
    """Run it; pytest's exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="for a week; 60 by default")
    os.environ["LEDGERMQ_WEEK_MINUTES"] = str(parser.parse_args().minutes)
    for name in ("LEDGERMQ_LONG", "LEDGERMQ_S3", "LEDGERMQ_SPARK"):
        # What is not here makes it fail.
        os.environ[name] = "1"
    return int(pytest.main(["-q", "-s", "-p", "no:cacheprovider", str(Path(__file__).parent)]))


if __name__ == "__main__":
    sys.exit(main())
