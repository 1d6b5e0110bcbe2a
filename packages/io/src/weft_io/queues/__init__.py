"""The public classes of queues, accumulators, barriers and staging areas."""
