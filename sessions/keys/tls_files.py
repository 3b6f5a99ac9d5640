"""TLS of a server, read from its certificate and its key."""

from __future__ import annotations

import ssl
from pathlib import Path

from ledgermq.model.errors import ConfigError


def server_context(certificate: Path, key: Path, *, section: str) -> ssl.SSLContext:
    """What connections need for TLS, 1.2 or later, read from the files now.

    Args:
        certificate: PEM, with those of its issuers behind it.
        key: PEM, without a password.
        section: table of the settings that names both, for errors.

    Raises:
        ConfigError: a file cannot be read, or is not what it should be.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    for path, setting in ((certificate, "tls_certificate_file"), (key, "tls_key_file")):
        try:
            path.read_bytes()
        except OSError as error:
            raise ConfigError(
                "file for TLS not read",
                file=str(path),
                setting=f"{section}.{setting}",
                reason=error.strerror,
            ) from error
    try:
        # An empty password: nobody is there to be asked for one.
        context.load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, ValueError, OSError) as error:
        raise ConfigError(
            "certificate and key for TLS do not fit, or are no PEM",
            certificate=str(certificate),
            key=str(key),
            setting=f"{section}.tls_certificate_file",
            reason=str(error),
        ) from error
    return context
