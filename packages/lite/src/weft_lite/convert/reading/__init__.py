"""Rules that convert ops of files to ops of graphs, one module per family."""
