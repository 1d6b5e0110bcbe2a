"""The routines that programs call, a module for each family."""
