"""Who runs now, where, and who waits: placement, admission, and the policies that combine them.

A policy reads the state and returns assignments; it changes nothing. `engine.py` applies them.
"""
