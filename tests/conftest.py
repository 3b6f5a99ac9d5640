"""What tests of every kind share: the store directories that the real Java broker wrote."""

from __future__ import annotations

import fcntl
import json
import lzma
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# What it compares is shown when it differs, as in the tests themselves.
pytest.register_assert_rewrite("tests.process.kill_lives")

# The same examples in every run; on a busy machine an example may take any time.
settings.register_profile("ledgermq", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ledgermq")

_COMMITTED = Path(__file__).parent / "format" / "data"
_OF_THE_DEMO = Path(__file__).parents[1] / "ledgermq" / "cli" / "node" / "demo_store.tar.xz"
_BESIDE_CHECKOUT = Path(__file__).resolve().parents[2] / "shared" / "golden"
_OF_ROCKETMQ_5 = _BESIDE_CHECKOUT.with_name("golden5")

pytest_plugins = ["tests.suite.plugin"]

Golden = Callable[[str], Path]
GoldenJson = Callable[[str], Any]


def _golden_file(name: str) -> Path:
    beside = Path(os.environ.get("LEDGERMQ_GOLDEN") or _BESIDE_CHECKOUT)
    if name == "gd0.tar.xz":
        return _OF_THE_DEMO
    folders = [_COMMITTED, beside, _OF_ROCKETMQ_5]
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    pytest.skip(f"{name} is neither in tests/format/data nor in the folder LEDGERMQ_GOLDEN names")


def _unpack(name: str, target: Path) -> Path:
    with tarfile.open(_golden_file(f"{name}.tar.xz")) as archive:
        # Python 3.11.2, which is Debian 12's, has no filters yet; the archives are our own.
        if hasattr(tarfile, "data_filter"):
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(target)
    return target / "store"


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Golden:
    """``golden("gd0")``: that broker's store directory, unpacked once a run, not to be changed.

    All workers of pytest-xdist have the same; the first that wants it unpacks it.
    """
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    root = root / "golden"
    root.mkdir(exist_ok=True)

    def store(name: str) -> Path:
        target = root / name
        with (root / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.exists():
                fresh = root / f"{name}.unpacking"
                shutil.rmtree(fresh, ignore_errors=True)
                _unpack(name, fresh)
                fresh.rename(target)
        return target / "store"

    return store


@pytest.fixture
def golden_copy(tmp_path: Path) -> Golden:
    """``golden_copy("gd0")``: a fresh copy of that broker's store directory, free to be changed."""

    def store(name: str) -> Path:
        return _unpack(name, tmp_path / f"golden-{name}")

    return store


@pytest.fixture(scope="session")
def golden_json() -> GoldenJson:
    """``golden_json("gd0")`` or ``("gd")``: what that broker, or that group, answered."""
    documents: dict[str, Any] = {}

    def document(name: str) -> Any:
        group = name.split(".", maxsplit=1)[0]
        group = {"gd": "gd", "gu": "gu"}.get(group[:2], group)
        if group not in documents:
            documents[group] = json.loads(
                lzma.decompress(_golden_file(f"{group}.json.xz").read_bytes())
            )
        return documents[group]

    return document
