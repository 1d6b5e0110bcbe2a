"""From a pruned graph to values: executables, the step's state machine, the threads around it.

- `executable.py` derives kernels, slots and entries from a StepGraph, once per signature.
- `linear.py` runs instructions in a fixed order: the whole step when nothing can overlap.
- `step.py` is the ready queue of the paper's section 3.1 as a plain synchronous object.
- `driver.py` runs it: inline, on the pool, and through asynchronous kernels' continuations.
"""
