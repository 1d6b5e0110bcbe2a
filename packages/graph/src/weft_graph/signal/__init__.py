"""Signals: windows, frames, spectra and their features, made of other ops."""
