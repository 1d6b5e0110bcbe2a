"""Coordination of threads that work for a session: Coordinator, QueueRunner, CriticalSection."""
