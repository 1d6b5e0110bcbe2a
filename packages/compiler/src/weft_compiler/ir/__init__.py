"""The loop-nest IR: expressions, statements and programs.

Printer, parser, verifier, interpreter.
"""
