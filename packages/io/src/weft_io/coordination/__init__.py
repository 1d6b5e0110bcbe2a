"""Threads that work for a session: Coordinator, QueueRunner, CriticalSection."""
