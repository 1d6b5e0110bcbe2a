"""The worker of a task: its partitions of steps, and the exchange of values between tasks."""
