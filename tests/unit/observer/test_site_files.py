"""The documentation's site as the console brings it: what is sent, and what a page may run."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

import pytest

from ledgermq.model.errors import StorageError
from ledgermq.observer.console.console import SiteFiles

PAGE = b"""<html><head><script src="a.js"></script><script>colours()</script></head>
<body onclick="never()"><script id="__config" type="application/json">{"base": "."}</script></body>
"""


def archive(folder: Path) -> Path:
    path = folder / "site.zip"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("docs/index.html", PAGE)
        packed.writestr("a.js", b"say()")
        packed.writestr("folder/", b"")
    return path


def digest(script: bytes) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script).digest()).decode()}'"


def test_a_page_may_run_the_scripts_that_it_came_with_and_no_others(tmp_path: Path) -> None:
    page = SiteFiles(archive(tmp_path)).read("docs/index.html")
    script = SiteFiles(archive(tmp_path)).read("a.js")

    assert page is not None and script is not None
    assert (page.content, page.media_type) == (PAGE, "text/html")
    policy = page.headers["content-security-policy"]
    assert digest(b"colours()") in policy and digest(b"never()") not in policy
    (scripts,) = (rule for rule in policy.split("; ") if rule.startswith("script-src"))
    assert "unsafe" not in scripts
    assert script.media_type in ("text/javascript", "application/javascript")
    assert "sha256" not in script.headers["content-security-policy"]


@pytest.mark.parametrize("name", ["", "folder/", "/etc/passwd", "../site.zip", "docs/gone.html"])
def test_what_is_not_in_the_archive_is_not_there(tmp_path: Path, name: str) -> None:
    assert SiteFiles(archive(tmp_path)).read(name) is None


def test_without_an_archive_there_is_nothing_and_a_broken_one_is_told(tmp_path: Path) -> None:
    missing = SiteFiles(tmp_path / "site.zip")
    path = archive(tmp_path)
    path.write_bytes(path.read_bytes()[:-30])
    broken = SiteFiles(path)

    assert not missing.is_there and missing.read("docs/index.html") is None
    with pytest.raises(StorageError, match=r"site\.zip"):
        broken.read("docs/index.html")
