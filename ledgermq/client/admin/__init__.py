"""Questions of administrators and their typed results, the same for both forms.

Begin with ``admin.py``.
"""
