"""What traced steps say: where the time and the memory went."""
