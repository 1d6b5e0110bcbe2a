"""Paths of the parts of a SavedModel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft_graph import proto
from weft_io.files import paths
from weft_io.files.message_files import read_message
from weft_io.saved_model import constants
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_graph import proto


class SavedModelNotFoundError(errors.NotFoundError, OSError):
    """Error for a directory without a SavedModel.

    Pass the `export_dir` of `simple_save` or of the builder. The class is also an OSError, as in
    TensorFlow.
    """


def saved_model_path(export_dir: str, as_text: bool) -> str:
    """Return the path of the file with the graphs."""
    name = constants.SAVED_MODEL_FILENAME_PBTXT if as_text else constants.SAVED_MODEL_FILENAME_PB
    return paths.join(paths.as_path(export_dir), name)


def variables_prefix(export_dir: str) -> str:
    """Return the prefix of the bundle with the variables."""
    directory = paths.join(paths.as_path(export_dir), constants.VARIABLES_DIRECTORY)
    return paths.join(directory, constants.VARIABLES_FILENAME)


def asset_path(export_dir: str, filename: str) -> str:
    """Return the path of an asset.

    Raises: InvalidArgumentError: the file is outside the directory of the assets.
    """
    parts = filename.replace("\\", "/").split("/")
    if paths.is_absolute(filename) or ".." in parts or not filename:
        raise errors.InvalidArgumentError(
            f"the name of an asset must be one of a file under {constants.ASSETS_DIRECTORY}/, "
            f"got {filename!r}"
        )
    directory = paths.join(paths.as_path(export_dir), constants.ASSETS_DIRECTORY)
    return paths.join(directory, filename)


def read_saved_model(export_dir: str) -> tuple[proto.SavedModel, bool]:
    """Return the message of a SavedModel, and whether it is in text form.

    Raises:
      NotFoundError: the directory has no SavedModel.
      DataLossError: the file is damaged.
    """
    for as_text in (False, True):
        path = saved_model_path(export_dir, as_text)
        if paths.exists(path):
            return read_message(path, proto.SavedModel, as_text), as_text
    raise SavedModelNotFoundError(
        f"there is no SavedModel in {export_dir}: neither {constants.SAVED_MODEL_FILENAME_PB} nor "
        f"{constants.SAVED_MODEL_FILENAME_PBTXT} exists"
    )
