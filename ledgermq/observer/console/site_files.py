"""Site of the documentation: its files, brought along in one archive, and what each of them may do.

``packaging/make-site.sh`` makes the archive. Its pages have a few scripts within them, which turn
their colours and open their search; a page may run those alone, by their digests.
"""

from __future__ import annotations

import hashlib
import re
import zipfile
from base64 import b64encode
from collections.abc import Mapping
from functools import lru_cache
from mimetypes import guess_type
from pathlib import Path
from typing import NamedTuple

from ledgermq.model.errors import StorageError
from ledgermq.observer.console.rendering import FOLDER, HEADERS

_INSTALLED = FOLDER / "site.zip"
SITE = _INSTALLED if _INSTALLED.is_file() else FOLDER.parents[2] / "build" / "site" / "site.zip"
"""The archive: beside this module where it is installed; a checkout has that of ``make site``."""

KEPT_S = 600
"""A browser asks for a file again after so long."""

FIRST_PAGE = "index.html"
CONTENT_MAX = 16 << 20
"""Bytes of a file; none of the site has a quarter of that."""

_SCRIPT = re.compile(rb"<script(?![^>]*\bsrc=)[^>]*>(.*?)</script>", re.DOTALL)
_POLICY = (
    "default-src 'none'; script-src 'self' {scripts}; worker-src 'self'; connect-src 'self';"
    " style-src 'self' 'unsafe-inline'; img-src 'self' data:; form-action 'none'; base-uri 'none';"
    " frame-ancestors 'none'"
)


class SiteFile(NamedTuple):
    """A file of the site as it is sent."""

    content: bytes
    media_type: str
    headers: Mapping[str, str]


class SiteFiles:
    """The files of an archive; a blocking reader."""

    def __init__(self, archive: Path = SITE) -> None:
        """Look whether there is one; a node is as good without it."""
        self._archive = archive
        self.is_there = archive.is_file()
        self.read = lru_cache(8)(self._read)

    def _read(self, name: str) -> SiteFile | None:
        """The file of that name; None: there is none, or no archive.

        Raises:
            StorageError: the archive cannot be read, or is another one than it was.
        """
        if not self.is_there:
            return None
        try:
            with zipfile.ZipFile(self._archive) as archive:
                info = archive.NameToInfo.get(name)
                if info is None or info.is_dir() or info.file_size > CONTENT_MAX:
                    return None
                content = archive.read(info)
        except (OSError, zipfile.BadZipFile, EOFError) as error:
            raise StorageError(
                "documentation cannot be read", file=str(self._archive), reason=str(error)
            ) from error
        media_type = guess_type(name)[0] or "application/octet-stream"
        digests = {
            b64encode(hashlib.sha256(script).digest()).decode()
            for script in (_SCRIPT.findall(content) if name.endswith(".html") else ())
        }
        scripts = " ".join(f"'sha256-{digest}'" for digest in sorted(digests))
        policy = _POLICY.format(scripts=scripts)
        kept = {"content-security-policy": policy, "cache-control": f"private, max-age={KEPT_S}"}
        return SiteFile(content, media_type, {**HEADERS, **kept})
