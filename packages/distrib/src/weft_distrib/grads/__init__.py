"""Gradients of weftml-distrib's ops."""
