"""Savers with checkpoints that TensorFlow can read: `Saver(builder=BundleSaverBuilder())`."""

from __future__ import annotations

__all__ = ["BundleSaverBuilder"]

from collections.abc import Sequence

from weft_graph.ir import builder
from weft_graph.ir.builder import constant
from weft_graph.ir.node import Output
from weft_graph.ops.strings import string_join
from weft_io.bundle.merging import temporary_suffix
from weft_io.ops.bundle import merge_v2_checkpoints, sharded_filename
from weft_io.ops.checkpoint import save_v2
from weft_io.saving.saveables import SaveableObject
from weft_io.saving.saver_builder import SaverBuilder


class BundleSaverBuilder(SaverBuilder):
    """Builder of the nodes that save bundles, with the names of TensorFlow's sharded savers.

    Each shard is first written as a separate bundle in a temporary directory next to the
    checkpoint. Merging renames their files and writes one index. TensorFlow can run the nodes, too.
    Args:
      write_version: the version in the `SaverDef`.

    Examples:
      >>> step = wf.Variable(7, name="step")
      >>> saver = wf.train.Saver(builder=wf.train.BundleSaverBuilder())
      >>> with wf.Session() as session:
      ...     session.run(step.initializer)
      ...     prefix = saver.save(session, "./bundle")
      >>> wf.train.load_variable(prefix, "step")
      np.int32(7)
    """

    def add_save(self, path: Output, saveables: Sequence[SaveableObject], sharded: bool) -> Output:
        """Add the nodes that save; return the output with the path, which depends on them."""
        specs = [spec for saveable in saveables for spec in saveable.specs]
        devices = sorted({spec.device for spec in specs}) if sharded else [""]
        base = string_join([path, constant(temporary_suffix())], name="StringJoin")
        number = constant(len(devices), name="num_shards")
        names, saved = [], []
        for i, device in enumerate(devices):
            device_specs = [spec for spec in specs if not sharded or spec.device == device]
            with path.graph.device(device or None):
                names.append(sharded_filename(base, i, number, name="ShardedFilename"))
                saved.append(
                    save_v2(
                        names[-1],
                        [spec.name for spec in device_specs],
                        [spec.slice_spec for spec in device_specs],
                        [spec.tensor for spec in device_specs],
                        name="SaveV2",
                    )
                )
        with path.graph.control_dependencies(saved):
            parts = builder.out("Pack", [names], name="MergeV2Checkpoints/checkpoint_prefixes")
            merged = merge_v2_checkpoints(parts, path, name="MergeV2Checkpoints")
        with path.graph.control_dependencies([merged]):
            return builder.out("Identity", [path], None, "Identity")
