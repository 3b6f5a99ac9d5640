"""Keys by which the home of a cluster signs, from what all members of the group have.

A group's members have one secret file alike already, ``users.key`` (``sessions/keys``), and the
home's key is derived from it: no other secret has to be carried to each of them. Where that file is
changed, the home signs with the key of its certificate for as long as the line stays in it.
"""

from __future__ import annotations

from ledgermq.model.errors import ConfigError
from ledgermq.rules.cluster.signatures import SigningKey
from ledgermq.sessions.keys.user_secrets import UserSecrets

PURPOSE = b"ledgermq home of a cluster"


def new_home_key(secrets: UserSecrets) -> SigningKey:
    """The key that the group is certified with from now on.

    Raises:
        ConfigError: members have no secret in common; says how to give them one.
        StorageError: the key of a node that is alone cannot be written.
    """
    derived = secrets.derived(PURPOSE, makes=True)
    if not derived:
        raise ConfigError(
            "members of the group have no key in common, from which the home's is made: make one"
            " with `ledgermq acl keys --users users.key`, and copy it to raft.keys_dir of each"
        )
    return SigningKey(derived[0])


def home_key(secrets: UserSecrets, public: bytes) -> SigningKey | None:
    """The key whose public half a certificate has; None: this node has it not."""
    for derived in secrets.derived(PURPOSE):
        key = SigningKey(derived)
        if key.public == public:
            return key
    return None
