"""Editing of the method names in the signatures of a SavedModel."""

from __future__ import annotations

from collections.abc import Sequence

from weft_io.files.message_files import write_message
from weft_io.saved_model.files import read_saved_model, saved_model_path
from weft_tensor import errors


class MethodNameUpdater:
    """Changes the method names in the signatures of a SavedModel.

    Args:
      export_dir: the directory of the SavedModel.
    Raises: NotFoundError, DataLossError: it does not exist, or is damaged.

    Examples:
      >>> with wf.Session() as session:
      ...     x = wf.placeholder(wf.float32, [], name="x")
      ...     wf.saved_model.simple_save(session, "./renamed", {"x": x}, {"y": x + 1.0})
      >>> updater = wf.saved_model.signature_def_utils.MethodNameUpdater("./renamed")
      >>> updater.replace_method_name("serving_default", "ours/predict")
      >>> updater.save()
    """

    def __init__(self, export_dir: str) -> None:
        self._export_dir = export_dir
        self._message, self._as_text = read_saved_model(export_dir)

    def replace_method_name(
        self, signature_key: str, method_name: str, tags: str | Sequence[str] | None = None
    ) -> None:
        """Change the method name of a signature.

        Args:
          signature_key: name of the signature.
          method_name: new name of its method.
          tags: the tags of its graph; all graphs by default.
        Raises: InvalidArgumentError: no graph has the tags, or the graph lacks the signature.
        """
        if not signature_key or not method_name:
            raise errors.InvalidArgumentError(
                f"a signature and a method are required, got {signature_key!r} and {method_name!r}"
            )
        expected = None if tags is None else {tags} if isinstance(tags, str) else set(tags)
        graphs = [
            graph
            for graph in self._message.meta_graphs
            if expected is None or set(graph.meta_info_def.tags) == expected
        ]
        if not graphs:
            raise errors.InvalidArgumentError(f"no graph of the SavedModel has the tags {tags!r}")
        for graph in graphs:
            if signature_key not in graph.signature_def:
                raise errors.InvalidArgumentError(
                    f"the graph with the tags {list(graph.meta_info_def.tags)} has no signature "
                    f"{signature_key!r}; it has {sorted(graph.signature_def)}"
                )
        for graph in graphs:
            graph.signature_def[signature_key].method_name = method_name

    def save(self, new_export_dir: str | None = None) -> None:
        """Write the SavedModel's file, in text or binary form like the original.

        Args:
          new_export_dir: the directory to write to; by default the original one.
        """
        path = saved_model_path(new_export_dir or self._export_dir, self._as_text)
        write_message(path, self._message, self._as_text)
