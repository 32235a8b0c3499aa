"""`tao demo`: real agents, modelled GPUs, three policies, one table.

Two simulated backends, a coordinator and a fleet of real mini-SWE-agent sessions run as child
processes, once per policy, on the same scripted work. Everything that is printed comes from the
run.
"""
