"""Modelled backends: an engine's scheduler, KV cache and step times as a pure function of time.

`BackendModel` is the engine; `tao sim-backend` serves it over HTTP in real or scaled time and the
trace simulator drives it in virtual time. Nothing here reads a clock: time enters as `now_s`.
"""
