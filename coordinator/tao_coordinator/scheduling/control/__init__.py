"""Feedback: how much of each backend may be committed, and whether to decide at all."""
