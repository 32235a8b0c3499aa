"""Pure values and state of the coordinator: no I/O, no clock, no tasks.

`events` are facts that come in, `effects` orders that go out, `model` the live values,
`state` the one place where they change.
"""
