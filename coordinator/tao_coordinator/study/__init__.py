"""Studies: many simulated runs, paired by seed, reduced to tables and plots.

`cell` is one run, `sweep` runs many on all cores and resumes, `measures` and `statistics` reduce
them, `report` and `plots` write them down, `studies` says what is asked and what was published.
"""
