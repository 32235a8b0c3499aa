"""How long an idle session stays idle: pure predictors, no clock.

The first form is one histogram of idle durations per tool key; calibrated readiness predictors come
beside it.
"""
