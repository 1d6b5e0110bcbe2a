"""The executor: executables, the state machine of a step, and the threads that drive it.

- `executable.py` derives kernels, slots and entries from a StepGraph, once per signature.
- `linear.py` runs instructions in a fixed order: the whole step when nothing can overlap.
- `step.py` is the ready queue of the paper's section 3.1 as a plain synchronous object.
- `driver.py` runs it: inline, on the pool, and through asynchronous kernels' continuations.
"""
