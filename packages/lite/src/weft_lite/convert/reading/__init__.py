"""What the ops of files compute, by ops of graphs: rules of kinds, a module for each family."""
