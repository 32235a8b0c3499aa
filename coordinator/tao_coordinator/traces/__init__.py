"""Readers for recorded agent sessions: pure parsing of text into frozen values.

Files are opened by whoever calls (`bench.trace_file`). A damaged row costs only itself and is named
in `Trace.skipped`; a text without a single usable row raises `MalformedTrace`.
"""
