"""Readers for recorded agent sessions: pure parsing of text into frozen values.

`files` opens them; the readers never touch a disk. A damaged row costs only itself and is named
in `Trace.skipped`; a text without a single usable row raises `MalformedTrace`.
"""
