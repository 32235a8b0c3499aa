"""Other people's policies behind our protocol and our engine, so that comparisons are fair.

Each file is one policy, as its own code or paper does it; `docs/rivals.md` says where ours departs
from the original, and why. They decide on notes of their own: none of `tao`'s budgets, reserves or
bounds on waiting applies to them.
"""
