"""Devices: description, registration and discovery."""
