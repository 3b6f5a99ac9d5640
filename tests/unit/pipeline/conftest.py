"""What reads for Spark needs pyarrow, which a checkout may have been told to do without."""

from __future__ import annotations

import os

if os.environ.get("LEDGERMQ_WITHOUT_SPARK") == "1":
    collect_ignore_glob = ["test_*.py"]
