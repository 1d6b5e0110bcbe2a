"""Rules that compute ops of files by ops of graphs, in a module for each family."""
