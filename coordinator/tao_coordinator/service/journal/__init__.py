"""The coordinator's journal: what its sessions did, as a trace that `tao replay` reads.

`recorder` turns events and effects into rows on the event loop, `writer` takes them over a bounded
queue to a thread of its own, `folder` is the files: rotated, packed, bounded, one writer each.
Sizes, names and times only: no prompt, argument or output ever comes here.
"""
