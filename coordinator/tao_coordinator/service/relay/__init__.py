"""The relay: model calls that come to the coordinator's own port, for harnesses without the SDK.

Life of a call: `routes` reads it (`call`, `identity`), `leasing` gets its lease from the same
engine as the lease API, `passage` sends it to the backend (`upstream`) and passes the reply on,
reading usage in passing (`usage`). `watch` ends it when the client leaves or nothing moves.
"""
