"""The coordinator's shell: the only clock, the sockets, the timer and the task group."""
