"""The source archive of a release: what an index gives to whoever has no wheel."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked_archive(tmp_path_factory.mktemp("archive"))


@pytest.mark.long
@pytest.mark.slow
def test_the_kernels_are_translated_from_the_source_archive_alone(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "setup.py", "--version"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    names = {path.stem for path in (ROOT / "ledgermq" / "formats" / "kernels").glob("_[a-z]*.py")}
    assert {path.stem for path in (folder / "build" / "cython").rglob("*.c")} == names


@pytest.mark.long
@pytest.mark.slow
def test_the_source_archive_has_every_module_and_nothing_of_the_tests(folder: Path) -> None:
    modules, packed = (
        {path.relative_to(tree) for path in (tree / "ledgermq").rglob("*.py")}
        for tree in (ROOT, folder)
    )
    assert modules == packed != set()
    assert not (folder / "tests").exists()
    assert (folder / "CHANGELOG.md").read_bytes() == (ROOT / "CHANGELOG.md").read_bytes()


def unpacked_archive(folder: Path) -> Path:
    """What is in the source archive of this checkout, as git knows it; made without a network."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listed.returncode != 0:
        pytest.skip("not a checkout of git: what belongs into the archive is not known")
    tree = folder / "tree"
    for name in listed.stdout.split("\0"):
        source = ROOT / name
        # Not what was deleted, and git does not know yet; links are made by whoever needs them.
        if name and source.exists():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, tree / name, follow_symlinks=False)
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", "sdist", "--dist-dir", folder / "dist"],
        cwd=tree, check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    (archive,) = (folder / "dist").glob("ledgermq-*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder / "unpacked")
    (unpacked,) = (folder / "unpacked").iterdir()
    return unpacked
