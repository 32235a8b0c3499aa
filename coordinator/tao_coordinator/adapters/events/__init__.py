"""Lifecycle events from outside: OTLP logs and spans, and the hooks of harnesses.

`otlp` is the envelope (encodings, bounds, replies); `log_records` and `spans` turn bodies into
rows; one module per emitter turns rows into core events; `receiver` remembers what was seen before.
"""
