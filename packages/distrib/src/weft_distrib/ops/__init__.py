"""Declarations of weftml-distrib's ops."""
