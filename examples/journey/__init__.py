"""The stages that all journeys share: train, resume, evaluate, draw, export, run on a device.

A journey is a subclass of `Journey` in `examples/<name>/train.py`; `main` runs it.
"""

from journey.base import Answers, Feeds, Journey, Serving, Training
from journey.command import main

__all__ = ["Answers", "Feeds", "Journey", "Serving", "Training", "main"]
