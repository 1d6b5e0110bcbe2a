"""The asset files of a SavedModel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft_graph import proto
from weft_graph.ir.node import Output
from weft_graph.ir.traits import Role
from weft_io.files import gfile
from weft_io.files.message_files import pack, unpack
from weft_io.saved_model import constants
from weft_io.saved_model.files import asset_path
from weft_tensor import dtypes, errors

_CHUNK = 1 << 20


class AssetFiles:
    """The files under `assets/` of a SavedModel being written.

    Args:
      export_dir: the directory of the SavedModel.
    """

    def __init__(self, export_dir: str) -> None:
        self._export_dir = export_dir
        self._sources: dict[str, str] = {}

    def add(self, tensors: Sequence[Output]) -> list[Any]:
        """Copy the files whose paths are in constants.

        Args:
          tensors: string constants of rank 0.
        Returns: per constant an `Any` with an `AssetFileDef`.
        Raises:
          InvalidArgumentError, InvalidTypeError: a tensor is not such a constant.
          NotFoundError: a file does not exist.
        """
        messages = []
        for tensor, source in [(tensor, _path(tensor)) for tensor in tensors]:
            name = self._name(source)
            if name not in self._sources:
                target = asset_path(self._export_dir, name)
                gfile.makedirs(target.removesuffix(name).rstrip("/\\"))
                gfile.copy(source, target, overwrite=True)
                self._sources[name] = source
            info = proto.TensorInfo(name=tensor.name)
            messages.append(pack(proto.AssetFileDef(filename=name, tensor_info=info)))
        return messages

    def _name(self, source: str) -> str:
        """Return the name of the copy; a different file with the same name gets a number."""
        base = name = source.replace("\\", "/").rpartition("/")[2]
        number = 0
        while name in self._sources:
            if _has_same_contents(self._sources[name], source):
                return name
            number += 1
            name = f"{base}_{number}"
        return name


def _path(tensor: Any) -> str:
    if not isinstance(tensor, Output):
        raise errors.InvalidTypeError(f"an asset must be a tensor with its path, got {tensor!r}")
    value = tensor.node.attrs.get("value") if tensor.node.role is Role.CONSTANT else None
    if value is None or tensor.dtype is not dtypes.string or value.size != 1:
        raise errors.InvalidTypeError(
            f"an asset must be a string constant of one element with its path, got {tensor!r} of "
            f"a {tensor.node.type}"
        )
    path: str = value.reshape(-1)[0].decode("utf-8", "surrogateescape")
    if not path:
        raise errors.InvalidArgumentError(f"the asset {tensor!r} has an empty path")
    return path


def _has_same_contents(path: str, other_path: str) -> bool:
    """Return True if two files have the same contents."""
    if path == other_path:
        return True
    if gfile.stat(path).length != gfile.stat(other_path).length:
        return False
    with gfile.GFile(path, "rb") as first, gfile.GFile(other_path, "rb") as second:
        while True:
            data = first.read(_CHUNK)
            if data != second.read(_CHUNK):
                return False
            if not data:
                return True


def asset_feeds(export_dir: str, message: proto.MetaGraphDef, scope: str = "") -> dict[str, bytes]:
    """Return the feeds that tell a loaded graph the paths of its files.

    Args:
      scope: the name scope that it was imported under.
    Returns: the path of each file, by the name of the tensor to feed.
    Raises: InvalidArgumentError: a file is outside the directory of the assets.
    """
    feeds = {}
    for asset in message.asset_file_def or _read_collection(message.collection_def):
        name = asset.tensor_info.name
        path = asset_path(export_dir, asset.filename)
        feeds[f"{scope}/{name}" if scope else name] = path.encode("utf-8", "surrogateescape")
    return feeds


def _read_collection(collections: Mapping[str, Any]) -> list[proto.AssetFileDef]:
    if constants.ASSETS_KEY not in collections:
        return []
    items = collections[constants.ASSETS_KEY].any_list.value
    result = [unpack(item, proto.AssetFileDef) for item in items]
    return [asset for asset in result if asset is not None]
