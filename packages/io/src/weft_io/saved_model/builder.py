"""Writer of SavedModels."""

from __future__ import annotations

from weft_graph import proto

__all__ = ["SavedModelBuilder", "simple_save"]

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.node import Node, Output
from weft_io.bundle.table import is_table
from weft_io.checkpoint.index import index_path
from weft_io.files import gfile, paths
from weft_io.files.message_files import write_message
from weft_io.saved_model import constants, signature_constants, tag_constants
from weft_io.saved_model.assets import AssetFiles
from weft_io.saved_model.files import saved_model_path, variables_prefix
from weft_io.saved_model.signature_def_utils import predict_signature_def
from weft_io.saving.bundle_saver_builder import BundleSaverBuilder
from weft_io.saving.saver import Saver
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_graph import proto

_log = logging.getLogger("weft")


class SavedModelError(errors.FailedPreconditionError, AssertionError):
    """Error for a SavedModel that cannot be written: wrong order of calls, or a used directory.

    First add the graph whose variables are saved, once, and export to a directory that is empty or
    does not exist. The class is also an AssertionError, as in TensorFlow.
    """


class SavedModelBuilder:
    """Writes graphs with signatures, their variables and their files to a directory.

    The first graph is added with its variables, which the others share:

        builder = SavedModelBuilder(directory)
        with Session(graph=training) as session:
            builder.add_meta_graph_and_variables(session, ["train"])
        with serving.as_default():
            builder.add_meta_graph(["serve"], signatures)
        builder.save()

    The result is TensorFlow's: its programs and servers load it.

    Args:
      export_dir: the directory; it must be empty, or not exist.
    Raises: SavedModelError: the directory is not empty.

    Examples:
      >>> builder = wf.saved_model.builder.SavedModelBuilder("./built")
      >>> with wf.Session() as session:
      ...     builder.add_meta_graph_and_variables(session, [wf.saved_model.tag_constants.SERVING])
      >>> builder.save() is not None
      True
    """

    def __init__(self, export_dir: Any) -> None:
        self._export_dir = paths.as_path(export_dir)
        self._message = proto.SavedModel(
            saved_model_schema_version=constants.SAVED_MODEL_SCHEMA_VERSION
        )
        self._has_variables = False
        self._assets = AssetFiles(self._export_dir)
        if gfile.exists(self._export_dir) and gfile.listdir(self._export_dir):
            raise SavedModelError(
                f"the directory {self._export_dir} is not empty; export to another directory, or "
                "empty this one"
            )
        gfile.makedirs(self._export_dir)

    def add_meta_graph_and_variables(
        self,
        sess: Any,
        tags: Iterable[str],
        signature_def_map: Mapping[str, Any] | None = None,
        assets_collection: Sequence[Output] | None = None,
        legacy_init_op: Node | None = None,
        clear_devices: bool = False,
        main_op: Node | None = None,
        strip_default_attrs: bool = False,
        saver: Any = None,
    ) -> None:
        """Add the graph of a session, and save its variables.

        Args:
          sess: the session with the variables.
          tags: tags that identify the graph.
          signature_def_map: signatures by name.
          assets_collection: constants with paths of files, which are copied; `main_op` sees the
            paths of the copies.
          legacy_init_op: `main_op` by its deprecated name.
          clear_devices: omit device requests.
          main_op: the node to run after the variables of a loaded model are restored.
          strip_default_attrs: omit attributes with default values, so that older readers accept the
            rest.
          saver: the saver of the variables; all variables by default. Its checkpoints must be
            bundles (`BundleSaverBuilder`).
        Raises:
          SavedModelError: variables are already saved.
          InvalidArgumentError, InvalidTypeError: a signature, an asset or an op is malformed.
        """
        if self._has_variables:
            raise SavedModelError(
                "the variables are already saved; add more graphs with add_meta_graph"
            )
        with sess.graph.as_default():
            self._prepare(
                signature_def_map, assets_collection, _choose_init_op(main_op, legacy_init_op)
            )
            saver = saver or _bundle_saver()
            prefix = variables_prefix(self._export_dir)
            directory = prefix.rpartition(constants.VARIABLES_FILENAME)[0].rstrip("/\\")
            gfile.makedirs(directory)
            try:
                # Later savers may save elsewhere: the state file would soon be wrong.
                saver.save(sess, prefix, write_meta_graph=False, write_state=False)
                self._check_format(prefix)
            except BaseException:  # because the next export wants an empty directory
                if gfile.exists(directory):
                    gfile.rmtree(directory)
                raise
            self._add(saver, tags, signature_def_map, clear_devices, strip_default_attrs)
        self._has_variables = True

    def add_meta_graph(
        self,
        tags: Iterable[str],
        signature_def_map: Mapping[str, Any] | None = None,
        assets_collection: Sequence[Output] | None = None,
        legacy_init_op: Node | None = None,
        clear_devices: bool = False,
        main_op: Node | None = None,
        strip_default_attrs: bool = False,
        saver: Any = None,
    ) -> None:
        """Add the default graph, whose variables must be among those already saved.

        Arguments and errors are those of `add_meta_graph_and_variables`, which must be called
        first.
        """
        if not self._has_variables:
            raise SavedModelError(
                "no variables were saved yet; the first graph is added by "
                "add_meta_graph_and_variables"
            )
        self._prepare(
            signature_def_map, assets_collection, _choose_init_op(main_op, legacy_init_op)
        )
        saver = saver or _bundle_saver()
        self._add(saver, tags, signature_def_map, clear_devices, strip_default_attrs)

    def save(self, as_text: bool = False) -> bytes:
        """Write the file with the graphs, which completes the SavedModel.

        Args:
          as_text: write protobuf's text format.
        Returns: the path of the file.
        Raises: InvalidArgumentError: the graphs have 2 GiB or more.
        """
        path = saved_model_path(self._export_dir, as_text)
        write_message(path, self._message, as_text)
        _log.info("SavedModel written to: %s", path)
        return path.encode("utf-8", "surrogateescape")

    def _prepare(
        self,
        signatures: Mapping[str, Any] | None,
        assets: Sequence[Output] | None,
        main_op: Node | None,
    ) -> None:
        """Check the other arguments of a graph and store them in its collections."""
        for name, signature in (signatures or {}).items():
            _check_signature(name, signature)
        graph = get_default_graph()
        if main_op is not None:
            if not isinstance(main_op, Node):
                raise errors.InvalidTypeError(f"main_op must be an operation, got {main_op!r}")
            for key in (constants.MAIN_OP_KEY, constants.LEGACY_INIT_OP_KEY):
                if graph.get_collection(key):
                    raise errors.InvalidArgumentError(
                        f"the graph already has a main op, in the collection {key!r}"
                    )
        for item in self._assets.add(assets or ()):
            graph.add_to_collection(constants.ASSETS_KEY, item)
        if main_op is not None:
            graph.add_to_collection(constants.MAIN_OP_KEY, main_op)

    def _add(
        self,
        saver: Any,
        tags: Iterable[str],
        signatures: Mapping[str, Any] | None,
        clear_devices: bool,
        strip_default_attrs: bool,
    ) -> None:
        message: proto.MetaGraphDef = saver.export_meta_graph(
            clear_devices=clear_devices, strip_default_attrs=strip_default_attrs
        )
        message.meta_info_def.tags.extend([tags] if isinstance(tags, str) else tags)
        for name, signature in (signatures or {}).items():
            message.signature_def[name].CopyFrom(signature)
        self._message.meta_graphs.append(message)

    def _check_format(self, prefix: str) -> None:
        path = index_path(prefix)
        if gfile.exists(path):
            with gfile.GFile(path, "rb") as file:
                if not is_table(file.read()):
                    raise errors.InvalidArgumentError(
                        "the saver of a SavedModel must write bundles: create it with "
                        "builder=BundleSaverBuilder()"
                    )


def _choose_init_op(main_op: Node | None, legacy_init_op: Node | None) -> Node | None:
    return legacy_init_op if main_op is None else main_op


def _bundle_saver() -> Any:
    return Saver(sharded=True, allow_empty=True, builder=BundleSaverBuilder())


def _check_signature(name: str, signature: Any) -> None:
    if name in (constants.INIT_OP_SIGNATURE_KEY, constants.TRAIN_OP_SIGNATURE_KEY):
        raise errors.InvalidArgumentError(f"the name {name!r} of a signature is reserved")
    for kind, infos in (("input", signature.inputs), ("output", signature.outputs)):
        for key, info in infos.items():
            _check_info(info, f"the {kind} {key!r} of the signature {name!r}")


def _check_info(info: Any, label: str) -> None:
    encoding = info.WhichOneof("encoding")
    if encoding is None:
        raise errors.InvalidArgumentError(f"{label} does not name a tensor")
    if encoding == "composite_tensor":
        for part in info.composite_tensor.components:
            _check_info(part, label)
    elif not info.dtype:
        raise errors.InvalidArgumentError(f"{label} has no element type")


def simple_save(
    session: Any,
    export_dir: Any,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    legacy_init_op: Node | None = None,
) -> None:
    """Write a session's graph and variables as a SavedModel with one signature.

    Its tag is "serve", and its signature "serving_default".

    Args:
      session: the session with the variables.
      export_dir: the directory; it must be empty, or not exist.
      inputs, outputs: tensors by the names that callers use.
      legacy_init_op: the node to run after loading.
    Raises: SavedModelError: the directory is not empty.

    Examples:
      >>> x = wf.placeholder(wf.float32, [None], name="x")
      >>> wf.saved_model.simple_save(wf.Session(), "./exported", {"x": x}, {"y": 2.0 * x})
      >>> wf.saved_model.contains_saved_model("./exported")
      True
    """
    signatures = {
        signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY: predict_signature_def(
            inputs, outputs
        )
    }
    builder = SavedModelBuilder(export_dir)
    try:
        builder.add_meta_graph_and_variables(
            session,
            [tag_constants.SERVING],
            signatures,
            session.graph.get_collection(GraphKeys.ASSET_FILEPATHS),
            clear_devices=True,
            main_op=legacy_init_op,
        )
        builder.save()
    except BaseException:  # because the next export wants an empty directory
        for name in gfile.listdir(export_dir):
            gfile.rmtree(paths.join(paths.as_path(export_dir), name))
        raise
