"""The routines that programs call, in one module for each family."""
