"""Resources through which steps exchange values and wait for each other.

Queues, accumulators, barriers and staging areas are state machines over
`weft_exec.resources.Waiters`. An operation that must wait joins a queue of waiters and blocks no
thread; state changes wake it. This package is independent of graphs, nodes and sessions, which are
handled in `weft_io/kernels`.
"""
