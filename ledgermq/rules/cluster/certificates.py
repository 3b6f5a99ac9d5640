"""Certificates of homes: which group is a cluster's home in which epoch, and who has said so.

The first of a chain is signed with the cluster's root key, which its operator keeps. One of a later
epoch is signed by the home of the epoch before, or again with the root key, when that home is lost.
Of two of an epoch the one that is signed with the root key counts; of two that are signed alike the
one that came first: two such are a mistake of an operator, or a home's key is in foreign hands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

from ledgermq.formats.ed25519 import PUBLIC_SIZE, SIGNATURE_SIZE
from ledgermq.model.errors import ConfigError
from ledgermq.model.names.clusters import CERTIFICATE_SIZE_MAX, CHAIN_LENGTH_MAX, NAME_LENGTH_MAX
from ledgermq.rules.cluster.json_objects import (
    decoded,
    encoded,
    integer_of,
    object_of,
    text_of,
    to_json,
)
from ledgermq.rules.cluster.signatures import SigningKey, signed_content

PURPOSE = b"ledgermq home certificate"


class Certificate(NamedTuple):
    """The home of one epoch.

    Attributes:
        by_root: signed with the root key, and not by the home of the epoch before.
        home: name of the group.
        key: public key with which it signs documents.
        start: number of the last row that it took over; what it writes has greater ones.
        signed: the certificate as it travels, its signature first.
    """

    cluster: str
    epoch: int
    by_root: bool
    home: str
    key: bytes
    start: int
    signed: bytes

    @property
    def rank(self) -> int:
        """The greater one counts; what a home signs says the rank of its certificate."""
        return 2 * self.epoch + self.by_root


def certify(signer: SigningKey, wanted: Certificate) -> Certificate:
    """``wanted`` as ``signer`` signs it; whoever reads it decides whether that one may.

    Raises:
        ConfigError: it is too large; a name is too long for it.
    """
    fields = {
        "byRoot": wanted.by_root,
        "cluster": wanted.cluster,
        "epoch": wanted.epoch,
        "home": wanted.home,
        "key": encoded(wanted.key),
        "start": wanted.start,
    }
    signed = signer.signed(PURPOSE, to_json(fields))
    if len(signed) > CERTIFICATE_SIZE_MAX:
        raise ConfigError(
            "certificate of a home is too large",
            size=len(signed),
            limit=CERTIFICATE_SIZE_MAX,
        )
    return wanted._replace(signed=signed)


class Chain:
    """The certificates that a group knows, from the last one of the root key to the greatest.

    Invariant: the root key has signed the first, and the home of each one has signed the next.
    """

    def __init__(self, cluster: str, root: bytes) -> None:
        self.cluster = cluster
        self.root = root
        self._links: list[Certificate] = []

    @classmethod
    def kept(cls, cluster: str, root: bytes, links: Sequence[bytes]) -> Self:
        """A chain that was checked when it came: its signatures are not checked again.

        Raises:
            ConfigError: one is no certificate.
        """
        chain = cls(cluster, root)
        chain._links = [_read(one[SIGNATURE_SIZE:], one) for one in links]
        return chain

    @property
    def greatest(self) -> Certificate | None:
        """That of the home; None before there is one."""
        return self._links[-1] if self._links else None

    @property
    def rank(self) -> int:
        """That of the home's certificate; 0 before there is one."""
        return self._links[-1].rank if self._links else 0

    def signed(self) -> list[bytes]:
        """All certificates as they travel, the first one first."""
        return [link.signed for link in self._links]

    def with_chain(self, offered: Sequence[bytes]) -> Chain:
        """The chain that counts once ``offered`` is known: a new one, or this.

        Raises:
            ConfigError: it is none of this cluster, or signed by nobody who may; or it has a home
                of a rank at which another one is known.
        """
        if [*offered] == self.signed():
            return self
        if len(offered) > CHAIN_LENGTH_MAX:
            raise ConfigError(
                "chain of certificates is too long", length=len(offered), limit=CHAIN_LENGTH_MAX
            )
        other = Chain(self.cluster, self.root)
        for signed in offered:
            other._add(signed)
        if other.rank < self.rank:
            return self
        self._check_agrees(other)
        return other if other.rank > self.rank else self

    def _check_agrees(self, other: Chain) -> None:
        """Two chains may not have different homes of a rank: somebody was certified twice."""
        known = {one.rank: one for one in self._links}
        for one in other._links:
            mine = known.get(one.rank)
            if mine is not None and (mine.home, mine.key) != (one.home, one.key):
                raise ConfigError(
                    "two homes of one epoch", epoch=one.epoch, known=mine.home, offered=one.home
                )

    def _add(self, signed: bytes) -> None:
        before = self.greatest
        content = signed_content(self.root, PURPOSE, signed)
        is_root = content is not None
        if content is None and before is not None:
            content = signed_content(before.key, PURPOSE, signed)
        if content is None:
            raise ConfigError("certificate is signed by nobody who may", cluster=self.cluster)
        found = _read(content, signed)
        follows = before is None or (
            found.rank > before.rank if is_root else found.epoch == before.epoch + 1
        )
        if found.cluster != self.cluster or found.by_root != is_root or not follows:
            raise ConfigError(
                "certificate does not belong here",
                cluster=found.cluster,
                expected=self.cluster,
                epoch=found.epoch,
            )
        if found.by_root:
            self._links.clear()
        self._links.append(found)


def _read(content: bytes, signed: bytes) -> Certificate:
    """The certificate, signed by somebody who may: what it has is checked all the same."""
    fields = object_of(content, size_max=CERTIFICATE_SIZE_MAX - SIGNATURE_SIZE)
    key = decoded(fields.get("key"), size_max=PUBLIC_SIZE)
    if len(key) != PUBLIC_SIZE:
        raise ConfigError("certificate has no key", size=len(key), expected=PUBLIC_SIZE)
    return Certificate(
        text_of(fields, "cluster", size_max=NAME_LENGTH_MAX),
        integer_of(fields, "epoch", low=1),
        fields.get("byRoot") is True,
        text_of(fields, "home", size_max=NAME_LENGTH_MAX),
        key,
        integer_of(fields, "start"),
        signed,
    )
