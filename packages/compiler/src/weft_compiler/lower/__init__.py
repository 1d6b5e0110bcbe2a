"""From nodes of a graph to programs: what each op computes, and the loops that compute it."""
