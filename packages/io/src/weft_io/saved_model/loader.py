"""Loader of SavedModels."""

from __future__ import annotations

__all__ = ["load", "maybe_saved_model_directory"]

import logging
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from weft_graph.ir.default_graph import get_default_graph
from weft_io.files import paths
from weft_io.meta_graphs.graph_def_edits import restore_defaults
from weft_io.meta_graphs.scoped_import import import_scoped_meta_graph
from weft_io.saved_model import constants
from weft_io.saved_model.assets import asset_feeds
from weft_io.saved_model.files import read_saved_model, saved_model_path, variables_prefix
from weft_io.saved_model.signature_def_utils import load_op_from_signature_def
from weft_io.saving.meta_graph import saver_of
from weft_io.saving.saveables import all_saveable_objects
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_graph import proto
    from weft_graph.ir.graph import Graph
    from weft_graph.ir.node import Node, Output

_log = logging.getLogger("weft")


class MetaGraphNotFoundError(errors.NotFoundError, RuntimeError):
    """Error for tags that no graph of a SavedModel has.

    The message lists the existing tags. The class is also a RuntimeError, as in TensorFlow.
    """


def maybe_saved_model_directory(export_dir: Any) -> bool:
    """Return True if a directory contains a SavedModel, judging by file names.

    Args:
      export_dir: a directory, or a URL that fsspec knows.

    Examples:
      >>> wf.saved_model.contains_saved_model("./nowhere")
      False
    """
    return any(paths.exists(saved_model_path(export_dir, text)) for text in (False, True))


contains_saved_model = maybe_saved_model_directory


def load(
    sess: Any,
    tags: Iterable[str],
    export_dir: Any,
    import_scope: str | None = None,
    *,
    allowed_ops: Collection[str] | None = None,
    **saver_kwargs: Any,
) -> proto.MetaGraphDef:
    """Add a graph of a SavedModel to a session's, restore its variables, and run its main op.

    Args:
      sess: the session.
      tags: all tags of the graph.
      export_dir: the SavedModel's directory.
      import_scope: name scope of the imported graph; the names in the result do not contain it.
      allowed_ops: the allowed op types, in its functions too, such as `wf.safe_ops()` for an
        untrusted model; all by default. If the ops of its saver are not allowed, its variables are
        restored by a new saver.
      **saver_kwargs: further arguments of `import_meta_graph`, such as `clear_devices`.
    Returns: the graph's message, with its signatures.
    Raises:
      NotFoundError: the SavedModel, a graph with the tags, or a variable does not exist.
      DataLossError: a file is damaged.
      PermissionDeniedError: the graph has ops outside `allowed_ops`; the message lists them with
        their nodes.
      InvalidArgumentError: the graph is invalid, or types or shapes of variables do not match.

    Examples:
      >>> x = wf.placeholder(wf.float32, [None], name="x")
      >>> wf.saved_model.simple_save(wf.Session(), "./model", {"x": x}, {"y": 2.0 * x})
      >>> with wf.Graph().as_default(), wf.Session() as session:
      ...     meta = wf.saved_model.loader.load(session, ["serve"], "./model")
      ...     session.run(meta.signature_def["serving_default"].outputs["y"].name, {"x:0": [3.0]})
      array([6.], dtype=float32)
    """
    loader = SavedModelLoader(export_dir)
    return loader.load(sess, tags, import_scope, allowed_ops=allowed_ops, **saver_kwargs)


class SavedModelLoader:
    """Loads graphs of a SavedModel, step by step.

    Args:
      export_dir: the directory of the SavedModel.
    Raises: NotFoundError, DataLossError: it does not exist, or is damaged.
    """

    def __init__(self, export_dir: Any) -> None:
        self._export_dir = paths.as_path(export_dir)
        self._message, _ = read_saved_model(self._export_dir)

    @property
    def export_dir(self) -> str:
        """The directory."""
        return self._export_dir

    @property
    def variables_path(self) -> str:
        """The prefix of the bundle with the variables."""
        return variables_prefix(self._export_dir)

    @property
    def saved_model(self) -> proto.SavedModel:
        """The message in the SavedModel's file."""
        return self._message

    def get_meta_graph_def_from_tags(self, tags: Iterable[str]) -> proto.MetaGraphDef:
        """Return the graph with exactly these tags.

        Raises: MetaGraphNotFoundError: no graph has these tags.
        """
        expected = {tags} if isinstance(tags, str) else set(tags)
        for message in self._message.meta_graphs:
            if set(message.meta_info_def.tags) == expected:
                if message.meta_info_def.stripped_default_attrs:
                    restore_defaults(message.graph_def)
                return message
        available = [sorted(message.meta_info_def.tags) for message in self._message.meta_graphs]
        raise MetaGraphNotFoundError(
            f"{self._export_dir} has no graph with the tags {sorted(expected)}; there are "
            f"{available}"
        )

    def load_graph(
        self,
        graph: Graph,
        tags: Iterable[str],
        import_scope: str | None = None,
        **saver_kwargs: Any,
    ) -> tuple[Any, list[Node | Output]]:
        """Add a graph; for arguments see `load`.

        Returns: its saver (None without variables), and the requested `return_elements`.
        """
        message = self.get_meta_graph_def_from_tags(tags)
        with graph.as_default():
            result = import_scoped_meta_graph(message, import_scope=import_scope, **saver_kwargs)
            return saver_of(result, import_scope), result.elements

    def restore_variables(self, sess: Any, saver: Any, import_scope: str | None = None) -> None:
        """Restore the variables.

        Args:
          saver: the saver returned by `load_graph`.
          import_scope: name scope of the graph.
        Raises: InvalidArgumentError: the graph has variables, and there is no saver.
        """
        if saver is not None:
            with sess.graph.as_default():
                saver.restore(sess, self.variables_path)
        elif all_saveable_objects(sess.graph, import_scope):
            raise errors.InvalidArgumentError("the graph has variables, and a saver is required")
        else:
            _log.info("%s has no variables", self._export_dir)

    def run_init_ops(self, sess: Any, tags: Iterable[str], import_scope: str | None = None) -> None:
        """Run the graph's main op, if it has one, with the paths of the model's files."""
        message = self.get_meta_graph_def_from_tags(tags)
        with sess.graph.as_default():
            op = init_op(message, import_scope)
        if op is not None:
            sess.run(op, asset_feeds(self._export_dir, message, import_scope or ""))

    def load(
        self,
        sess: Any,
        tags: Iterable[str],
        import_scope: str | None = None,
        **saver_kwargs: Any,
    ) -> proto.MetaGraphDef:
        """Load graph, variables and main op; for arguments and result see the function `load`."""
        message = self.get_meta_graph_def_from_tags(tags)
        with sess.graph.as_default():
            result = import_scoped_meta_graph(message, import_scope=import_scope, **saver_kwargs)
            saver = saver_of(result, import_scope)
        # The scope may have got a number.
        self.restore_variables(sess, saver, result.scope or None)
        self.run_init_ops(sess, tags, result.scope or None)
        return message


def init_op(message: proto.MetaGraphDef, import_scope: str | None = None) -> Any:
    """Return the node to run after loading into the default graph, or None.

    Raises: InvalidArgumentError: there are several.
    """
    key = constants.INIT_OP_SIGNATURE_KEY
    if key in message.signature_def:
        return load_op_from_signature_def(message.signature_def[key], key, import_scope)
    for key in (constants.MAIN_OP_KEY, constants.LEGACY_INIT_OP_KEY):
        if key in message.collection_def:
            names = message.collection_def[key].node_list.value
            if len(names) != 1:
                raise errors.InvalidArgumentError(
                    f"a graph has one main op at most, got {list(names)} in {key!r}"
                )
            prefix = f"{import_scope}/" if import_scope else ""
            return get_default_graph().as_graph_element(prefix + names[0])
    return None
