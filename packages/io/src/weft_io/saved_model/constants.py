"""The names of the files and collections of a SavedModel."""

from __future__ import annotations

__all__ = [
    "ASSETS_DIRECTORY",
    "ASSETS_KEY",
    "DEBUG_DIRECTORY",
    "DEBUG_INFO_FILENAME_PB",
    "LEGACY_INIT_OP_KEY",
    "MAIN_OP_KEY",
    "SAVED_MODEL_FILENAME_PB",
    "SAVED_MODEL_FILENAME_PBTXT",
    "SAVED_MODEL_SCHEMA_VERSION",
    "VARIABLES_DIRECTORY",
    "VARIABLES_FILENAME",
]

from typing import Final

SAVED_MODEL_SCHEMA_VERSION: Final = 1
SAVED_MODEL_FILENAME_PB: Final = "saved_model.pb"
SAVED_MODEL_FILENAME_PBTXT: Final = "saved_model.pbtxt"
VARIABLES_DIRECTORY: Final = "variables"
VARIABLES_FILENAME: Final = "variables"
ASSETS_DIRECTORY: Final = "assets"
DEBUG_DIRECTORY: Final = "debug"
DEBUG_INFO_FILENAME_PB: Final = "saved_model_debug_info.pb"

ASSETS_KEY: Final = "saved_model_assets"
LEGACY_INIT_OP_KEY: Final = "legacy_init_op"
MAIN_OP_KEY: Final = "saved_model_main_op"
TRAIN_OP_KEY: Final = "saved_model_train_op"

INIT_OP_SIGNATURE_KEY: Final = "__saved_model_init_op"
TRAIN_OP_SIGNATURE_KEY: Final = "__saved_model_train_op"
