"""Where sessions run: the lexicographic placement problem and its solvers."""
