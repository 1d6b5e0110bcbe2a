"""Object-based checkpoints: variables are named by the attributes that lead to them."""
