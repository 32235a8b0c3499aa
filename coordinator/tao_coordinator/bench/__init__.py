"""Benchmarks: figures that anyone can measure again on his own machine. Never asserted in tests."""
