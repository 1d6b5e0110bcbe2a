"""Packages of the runtime for app platforms and microcontrollers."""
