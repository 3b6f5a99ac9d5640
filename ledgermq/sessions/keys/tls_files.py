"""TLS of a server, read from its certificate and its key; and of who goes to one."""

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


def client_context(authorities: Path, *, setting: str) -> ssl.SSLContext:
    """What a connection needs that goes to a server whose certificate one of these has signed.

    Names in the certificate are not looked at: whoever has one of these authorities is let be it.

    Args:
        authorities: PEM, read from the file now.
        setting: that names it, for errors.

    Raises:
        ConfigError: the file cannot be read, or is not what it should be.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    try:
        context.load_verify_locations(cafile=authorities)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(
            "certificates of authorities not read",
            file=str(authorities),
            setting=setting,
            reason=error.strerror or str(error),
        ) from error
    return context
