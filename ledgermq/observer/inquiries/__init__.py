"""What a caller of HTTP may ask of the node, and change: a class for each subject.

All has the rights of the caller, and the same values as the commands' ``--json``.
"""
