"""KV events: what engines publish about each block that they cache or evict."""
