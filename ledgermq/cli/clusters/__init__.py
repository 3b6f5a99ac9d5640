"""Commands about a cluster of several groups: who is in it, who is its home, topics over groups.

Begin with ``cluster_verbs``.
"""
