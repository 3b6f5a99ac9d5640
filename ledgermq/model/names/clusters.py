"""Limits of a cluster of groups: of its names, its groups, their members and its certificates."""

CLUSTER_GROUPS_MAX = 1_000
NAME_LENGTH_MAX = 127

NODES_MAX = 64
NODE_ADDRESS_SIZE_MAX = 255
"""Longest address of a member of a group, and ``NODES_MAX`` such members: in a row and in a
command."""

CERTIFICATE_SIZE_MAX = 1_024
CHAIN_LENGTH_MAX = 64
"""A chain that would get longer begins anew with a certificate of the root key."""
