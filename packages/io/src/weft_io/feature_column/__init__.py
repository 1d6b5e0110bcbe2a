"""Feature columns: descriptions of features, and layers that read them."""
