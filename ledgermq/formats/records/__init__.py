"""Records: messages, their properties, bodies and ids.

Begin with ``message.py``.
"""
