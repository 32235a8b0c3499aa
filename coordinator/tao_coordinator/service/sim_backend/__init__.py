"""`tao sim-backend`: a modelled H100 backend behind the HTTP interface of a vLLM server.

`simulation.BackendModel` decides what happens when; this package gives it a clock, text and
sockets. Engine time runs `time_scale` times faster than real time. There is no tokenizer: a token
is a fixed number of characters, and the reply is rendered exactly as the client will send it back,
so that the next prompt of a session finds prompt and reply in the prefix cache, as it would in a
real engine.
"""
