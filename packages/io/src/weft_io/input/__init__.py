"""Input pipelines on queues: readers, parsing, batching."""
