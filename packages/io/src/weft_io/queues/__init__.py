"""Queues, accumulators, barriers and staging areas, as programs use them."""
