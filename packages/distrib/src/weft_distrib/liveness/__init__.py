"""Liveness of tasks: whether they are killed, frozen, unreachable, or only busy.

A killed task is noticed because its connections end. A frozen or unreachable task is not noticed in
this way, and a task that computes while holding the GIL looks the same to its peers. So each server
has a small probe process (`probe_process.py`), which the GIL of the server cannot block. It reports
the progress of the server's main
loop (`Heartbeat`), its CPU time, and whether it is stopped. Peers of the server poll it (`Watch`)
and evaluate the answers (`LivenessState`).
"""
