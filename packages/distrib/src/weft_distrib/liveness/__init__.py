"""Whether a task is there: killed, frozen, cut off, or only busy.

A task whose process is killed shows it: its connections end. One that is frozen or cut off does
not, and one that computes with the interpreter's lock held looks the same to whoever asks it. So
each server has a small process beside it (`answerer.py`) that its lock cannot stop. It says how
often the server has come round (`Heart`), how much processor time it has had, and whether it was
stopped. Who has a connection to the server asks (`Watch`) and judges (`Pulse`).
"""
