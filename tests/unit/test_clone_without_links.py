"""A clone on a system without symbolic links: git writes files with the targets in their place."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_layout import LINKS

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.long, pytest.mark.slow]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clone") / "ledgermq"
    command = ("git", "clone", "--quiet", "--config", "core.symlinks=false", ROOT, folder)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"not a checkout of git: {done.stderr.strip()}")
    return folder


def run(*words: str, folder: Path, path: Path) -> str:
    """What a command of Python prints in ``folder``, which imports from ``path``."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(path), "LEDGERMQ_PURE": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_it_is_installed_and_shows_its_documents(clone: Path, tmp_path: Path) -> None:
    assert {name: (clone / name).is_symlink() for name in LINKS} == dict.fromkeys(LINKS, False)
    where = tmp_path / "installed"
    words = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target")
    run(*words, str(where), ".", folder=clone, path=clone)
    program = (
        "from ledgermq.observer.console import documents; import ledgermq.daemon.supervisor as one;"
        "print(one.__file__, documents.PAGES, len(documents.titles()))"
    )

    module, pages, count = run("-c", program, folder=tmp_path, path=where).split()

    assert Path(module).is_relative_to(where) and Path(pages).is_relative_to(where)
    assert int(count) == len([*(ROOT / "docs" / "operating").glob("*.md")]) - 1


def test_its_tests_run_in_it(clone: Path) -> None:
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow and not oracle")

    told = run(*words, "tests/test_layout.py", "tests/unit/daemon", folder=clone, path=clone)

    assert " passed" in told and " failed" not in told, told
