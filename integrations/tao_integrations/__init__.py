"""The harnesses on the SDK, one module each; what is theirs to install stands beside it."""
