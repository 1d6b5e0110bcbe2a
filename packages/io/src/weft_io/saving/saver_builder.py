"""Construction of a Saver's nodes, with TensorFlow's names: save/Const, save/restore_all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft_graph import proto
from weft_graph.ir import builder
from weft_graph.ir.node import Node, Output
from weft_graph.ops.array import placeholder_with_default
from weft_io.ops.checkpoint import hold_for_save, restore_v2, save_v2
from weft_io.saving.saveables import SaveableObject, restore_nodes, saveables_for, static_dims
from weft_tensor import dtypes, errors
from weft_tensor.arguments import check_integer

if TYPE_CHECKING:
    from weft_graph import proto


class SaverBuilder:
    """Adds the nodes that save and restore variables.

    Args:
      write_version: the version in the `SaverDef`.
    """

    def __init__(self, write_version: int = 2) -> None:
        self._write_version = check_integer(write_version, "write_version", 0, 2)

    def build(
        self,
        names_to_saveables: Any,
        reshape: bool = False,
        sharded: bool = False,
        max_to_keep: int = 5,
        keep_checkpoint_every_n_hours: float = 10000.0,
        name: str | None = None,
        restore_sequentially: bool = False,
        filename: str = "model",
    ) -> proto.SaverDef:
        """Add the nodes; for arguments see `Saver`.

        Returns: the names of the nodes, and the settings.
        """
        saveables = saveables_for(names_to_saveables)
        graph = _graph_of(saveables)
        with (
            graph.as_default(),
            graph.control_dependencies(None),
            graph.device(None),
            graph.name_scope(name or "save"),
        ):
            default = placeholder_with_default(filename, (), "filename")
            path = placeholder_with_default(default, (), "Const")
            saved = self.add_save(path, saveables, sharded)
            restored = _add_restore(path, saveables, reshape, restore_sequentially)
        return proto.SaverDef(
            filename_tensor_name=path.name,
            save_tensor_name=saved.name,
            restore_op_name=restored.name,
            max_to_keep=max_to_keep,
            keep_checkpoint_every_n_hours=keep_checkpoint_every_n_hours,
            sharded=sharded,
            version=self._write_version,
        )

    def add_save(self, path: Output, saveables: Sequence[SaveableObject], sharded: bool) -> Output:
        """Add the nodes that save; return the output with the path, which depends on them."""
        return _add_save(path, saveables, sharded)


def _graph_of(saveables: Sequence[SaveableObject]) -> Any:
    op = saveables[0].op
    return getattr(op, "graph", None) or saveables[0].specs[0].tensor.graph


def _add_save(path: Output, saveables: Sequence[SaveableObject], sharded: bool) -> Output:
    specs = [spec for saveable in saveables for spec in saveable.specs]
    shards = None
    if sharded:
        devices = sorted({spec.device for spec in specs})
        shards = [devices.index(spec.device) for spec in specs]
    node = save_v2(
        path,
        [spec.name for spec in specs],
        [spec.slice_spec for spec in specs],
        [spec.tensor for spec in specs],
        shards,
    )
    with path.graph.control_dependencies([node]):
        return builder.out("Identity", [path], None, "control_dependency")


def add_hold(graph: Any, message: proto.SaverDef) -> Output:
    """Add the node that holds the tensors that a saver's SaveV2 saves; return its output.

    Raises: InvalidArgumentError: the saver's nodes do not have the form that `SaverBuilder`
      creates.
    """
    path = graph.as_graph_element(message.filename_tensor_name)
    saved_path = graph.as_graph_element(message.save_tensor_name)
    saves = [node for node in saved_path.node.controls if node.type == "SaveV2"]
    if len(saves) != 1 or saves[0].inputs[0] is not path:
        raise errors.InvalidArgumentError(
            f"an asynchronous saver needs one SaveV2 that writes to {path.name} before "
            f"{saved_path.name},"
            f" got {[node.name for node in saves]}"
        )
    names, slices, *tensors = saves[0].inputs[1:]
    scope = saves[0].name.rpartition("/")[0]
    with (
        graph.as_default(),
        graph.control_dependencies(None),
        graph.device(None),
        graph.name_scope(f"{scope}/" if scope else None),
    ):
        return hold_for_save(names, slices, tensors, saves[0].attrs.get("_shards"))


def _add_restore(
    path: Output, saveables: Sequence[SaveableObject], reshape: bool, sequentially: bool
) -> Node:
    specs = [spec for saveable in saveables for spec in saveable.specs]
    tensors = restore_v2(
        path,
        [spec.name for spec in specs],
        [spec.slice_spec for spec in specs],
        [spec.dtype for spec in specs],
        optional=_optional(saveables),
    )
    if not reshape:
        position = 0
        for saveable in saveables:
            dims = static_dims(saveable)
            if dims is not None:
                tensors[position].set_shape(dims)
            position += len(saveable.specs)
    nodes = restore_nodes(saveables, tensors, reshape, sequentially)
    with path.graph.control_dependencies(nodes):
        return builder.create("NoOp", (), None, "restore_all")


def _optional(saveables: Sequence[SaveableObject]) -> list[int]:
    """Return the indices of tensors that a checkpoint may lack; they are strings."""
    result = [
        (saveable.optional_restore, spec) for saveable in saveables for spec in saveable.specs
    ]
    return [i for i, (may, spec) in enumerate(result) if may and spec.dtype == dtypes.string]
