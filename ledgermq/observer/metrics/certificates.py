"""Certificates and files of keys: when the first end, and when the others were written."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from ledgermq.model.config.settings import Settings

_SEQUENCE, _CONTEXT_0, _UTC_TIME, _TIME = 0x30, 0xA0, 0x17, 0x18
FILE_SIZE_MAX = 1024 * 1024


def certificates_of(settings: Settings) -> Iterator[tuple[str, Path]]:
    """Certificates of the node, by the settings that name them."""
    for section in ("remoting", "http"):
        path = getattr(settings, section).tls_certificate_file
        if path is not None:
            yield f"{section}.tls_certificate_file", path


def key_files_of(settings: Settings) -> Iterator[tuple[str, Path]]:
    """Files whose age matters, by the settings that name them."""
    yield from certificates_of(settings)
    for key, path in (
        ("remoting.tls_key_file", settings.remoting.tls_key_file),
        ("http.tls_key_file", settings.http.tls_key_file),
        ("http.tokens_file", settings.http.tokens_file),
        ("listen.curve_secret_file", settings.listen.curve_secret_file),
        ("raft.keys_dir", settings.raft.keys_dir),
    ):
        if path is not None:
            yield key, path


def expiry_s(path: Path) -> float | None:
    """When the first certificate of a PEM file ends, since the epoch; None if there is none."""
    try:
        with path.open("rb") as file:
            text = file.read(FILE_SIZE_MAX).decode("ascii", "replace")
        begin = text.index("-----BEGIN CERTIFICATE-----")
        end = text.index("-----END CERTIFICATE-----", begin) + len("-----END CERTIFICATE-----")
        return _end_of_validity(ssl.PEM_cert_to_DER_cert(text[begin:end]))
    except (OSError, ValueError, IndexError):
        return None


def _end_of_validity(der: bytes) -> float:
    """``notAfter`` of RFC 5280, section 4.1: certificate, its body, version, serial, signature,
    issuer, validity.

    Raises:
        ValueError, IndexError: it is no certificate.
    """
    _, at, _ = _element(der, 0)
    _, at, _ = _element(der, at)
    tag, _, _ = _element(der, at)
    fields_before = 4 if tag == _CONTEXT_0 else 3
    for _ in range(fields_before):
        _, _, at = _element(der, at)
    tag, at, _ = _element(der, at)
    if tag != _SEQUENCE:
        raise ValueError("no validity")
    _, _, at = _element(der, at)
    tag, begin, end = _element(der, at)
    text = der[begin:end].decode("ascii")
    if tag == _UTC_TIME:
        # Two digits of the year: 50 and above are of the last century.
        text = ("19" if text[:2] >= "50" else "20") + text
    elif tag != _TIME:
        raise ValueError("no time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """Tag of the element at ``at``, where its content begins, and where it ends."""
    tag, size = der[at], der[at + 1]
    at += 2
    if size & 0x80:
        count = size & 0x7F
        size = int.from_bytes(der[at : at + count], "big")
        at += count
    if at + size > len(der):
        raise ValueError("an element goes on behind its end")
    return tag, at, at + size
