"""What a measurement was made on, and how its figures are written down."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from ledgermq.formats.kernels import crc32, kernel

RESULTS = Path(__file__).with_name("results")


def describe() -> dict[str, object]:
    """Machine, commit, and which variants of our own code ran."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": commit,
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "kernel_compiled": kernel.compiled,
        "crc32": crc32.NAME,
    }


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, smallest and largest of several runs."""
    return {
        "median": round(statistics.median(values), 3),
        "min": round(min(values), 3),
        "max": round(max(values), 3),
    }


def write(name: str, figures: Mapping[str, object]) -> Path:
    """Print the figures and keep them in ``bench/results``."""
    document = {"benchmark": name, "machine": describe(), **figures}
    text = json.dumps(document, indent=2)
    print(text)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(text + "\n")
    return path


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
