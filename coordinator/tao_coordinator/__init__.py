"""The coordinator: decides which session's turn runs now, on which backend, and which one waits."""
