"""Rules of conversion, a module for each op family."""
