"""The supervisor: it starts, watches and stops the processes of a node, and tells systemd.

Begin with ``supervisor.py`` and ``children.py``, which says which module is which process: they are
started by name. It may import ``process`` and below, and no process of a node.
"""
