"""What steps exchange values and wait for each other through.

Queues, accumulators, barriers and staging areas: state machines over `weft_exec.resources.Waiters`.
An operation that cannot go on joins a line and holds no thread; whoever changes the state lets it
go on. Nothing here knows of graphs, nodes or sessions: see `weft_io/kernels` for those.
"""
