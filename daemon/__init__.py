"""The supervisor: it starts, watches and stops the processes of a node, and tells systemd.

Begin with ``supervisor.py`` and ``children.py``; ``process_modules.py`` says which module is which
process. It may import all processes and what is below them.
"""
