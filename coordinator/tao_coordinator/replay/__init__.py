"""`tao replay`: what other policies would have made of a team's own sessions.

`plan` says which runs answer the question, `findings` reads the answers off them, `page` and
`charts` show them.
"""
