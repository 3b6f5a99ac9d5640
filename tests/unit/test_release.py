"""``packaging/release.py``: the steps that change a checkout, on a small one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WITHOUT = [f"--without={step}" for step in ("check", "audit", "wheels", "deb", "sbom")]
"""What builds, and takes minutes."""

CHANGES = """# Changes

<!-- releases -->

## 1.1.0 (2030-01-02)

### Fixed

- The log is kept.

## 1.0.0 (2029-01-02)
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    for name in ("pyproject.toml", "changelog.d/README.md", "changelog.d/release.md.jinja",
                 "packaging/release.py"):  # fmt: skip
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / "CHANGELOG.md").write_text(
        "# Changes\n\n<!-- releases -->\n\n## 1.0.0 (2029-01-02)\n"
    )
    (folder / "changelog.d" / "log.fixed.md").write_text("The log is kept.\n")
    (folder / "ledgermq").mkdir(parents=True)
    (folder / "ledgermq" / "__init__.py").write_text('"""Doc."""\n\n__version__ = "1.0.0"\n')
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Begin")
    return folder


def test_a_release_is_a_commit_with_its_changes_and_version_and_a_tag_that_tells_them(
    checkout: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()

    done = release(checkout, "1.1.0", "--date", "2030-01-02", "--output", str(folder))

    assert done.returncode == 0, done.stdout + done.stderr
    assert (checkout / "CHANGELOG.md").read_text() == CHANGES
    assert '\n__version__ = "1.1.0"\n' in (checkout / "ledgermq/__init__.py").read_text()
    assert not (checkout / "changelog.d" / "log.fixed.md").exists()
    assert git(checkout, "status", "--porcelain") == ""
    assert git(checkout, "log", "--format=%s") == "Release 1.1.0\nBegin"
    assert git(checkout, "cat-file", "-t", "v1.1.0") == "tag"
    assert git(checkout, "rev-parse", "v1.1.0^{commit}") == git(checkout, "rev-parse", "HEAD")
    assert git(checkout, "tag", "--list", "--format=%(contents)", "v1.1.0") == (
        "LedgerMQ 1.1.0\n\n### Fixed\n\n- The log is kept."
    )
    assert (folder / "SHA256SUMS").exists()


def test_what_is_no_release_is_refused_and_changes_nothing(checkout: Path) -> None:
    git(checkout, "tag", "v1.3.0")
    before = (git(checkout, "rev-parse", "HEAD"), git(checkout, "tag"))

    refused = {version: release(checkout, version) for version in ("1.0.0", "1.3.0", "1.1")}
    (checkout / "new").touch()
    refused["1.1.0"] = release(checkout, "1.1.0")

    assert {version: done.returncode for version, done in refused.items()} == dict.fromkeys(
        refused, 1
    )
    assert "1.0.0 is not above 1.0.0" in refused["1.0.0"].stderr
    assert "v1.3.0 is tagged already" in refused["1.3.0"].stderr
    assert "three numbers, as 0.2.0: 1.1" in refused["1.1"].stderr
    assert "changes that are in no commit:\n?? new" in refused["1.1.0"].stderr
    assert (git(checkout, "rev-parse", "HEAD"), git(checkout, "tag")) == before


def test_a_step_that_fails_leaves_no_tag_and_says_how_to_go_back(checkout: Path) -> None:
    before = git(checkout, "rev-parse", "HEAD")
    hook = checkout / ".git" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)

    done = release(checkout, "1.1.0")

    assert done.returncode == 1
    assert f"git reset --hard {before}" in done.stderr
    assert git(checkout, "tag") == ""


def test_a_release_with_a_repository_is_refused_at_once_without_a_key(
    checkout: Path, tmp_path: Path
) -> None:
    before = git(checkout, "rev-parse", "HEAD")
    words = [word for word in WITHOUT if not word.endswith("=deb")]
    empty = {**_environment(), "GNUPGHOME": str(tmp_path)}

    unnamed, unknown = (
        subprocess.run(
            [sys.executable, checkout / "packaging" / "release.py", "1.1.0", *words, *more],
            capture_output=True, text=True, check=False, env=empty,
        )
        for more in ([], ["--key", "nobody@ledgermq.example"])
    )  # fmt: skip

    assert (unnamed.returncode, unknown.returncode) == (1, 1)
    assert "a repository is signed: --key KEY, or --without repository" in unnamed.stderr
    assert "--list-secret-keys nobody@ledgermq.example" in unknown.stderr
    assert "git reset" not in unnamed.stderr + unknown.stderr
    assert git(checkout, "rev-parse", "HEAD") == before


def release(checkout: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, checkout / "packaging" / "release.py", *words, *WITHOUT],
        capture_output=True, text=True, check=False, env=_environment(),
    )  # fmt: skip


def git(checkout: Path, *words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=checkout, capture_output=True, text=True, check=True,
        env=_environment(),
    ).stdout.strip()  # fmt: skip


def _environment() -> dict[str, str]:
    """Somebody's name, and none of this machine's settings of git."""
    names = {
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "Somebody"), ("EMAIL", "somebody@ledgermq.example"))
    }
    nothing = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    return {**os.environ, **names, **nothing}
