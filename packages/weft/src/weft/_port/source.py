"""Static analysis of a program's source: the names of TensorFlow that it uses."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType

from weft._port.differences import DIFFERENT

ROOTS = ("tensorflow.compat.v1", "tensorflow")
PRIVATE = {
    "contrib.crf.python.ops.crf": "contrib.crf",
    "contrib.data.python.ops.batching": "contrib.data",
    "contrib.data.python.ops.counter": "contrib.data",
    "contrib.data.python.ops.enumerate_ops": "contrib.data",
    "contrib.data.python.ops.error_ops": "contrib.data",
    "contrib.data.python.ops.get_single_element": "contrib.data",
    "contrib.data.python.ops.grouping": "contrib.data",
    "contrib.data.python.ops.interleave_ops": "contrib.data",
    "contrib.data.python.ops.iterator_ops": "contrib.data",
    "contrib.data.python.ops.prefetching_ops": "contrib.data",
    "contrib.data.python.ops.random_ops": "contrib.data",
    "contrib.data.python.ops.readers": "contrib.data",
    "contrib.data.python.ops.resampling": "contrib.data",
    "contrib.data.python.ops.scan_ops": "contrib.data",
    "contrib.data.python.ops.shuffle_ops": "contrib.data",
    "contrib.data.python.ops.unique": "contrib.data",
    "contrib.data.python.ops.writers": "contrib.data",
    "contrib.framework.python.framework": "contrib.framework",
    "contrib.framework.python.ops": "contrib.framework",
    "contrib.framework.python.ops.arg_scope": "contrib.framework",
    "contrib.framework.python.ops.variables": "contrib.framework",
    "contrib.layers.python.layers": "contrib.layers",
    "contrib.layers.python.layers.initializers": "contrib.layers",
    "contrib.layers.python.layers.layers": "contrib.layers",
    "contrib.layers.python.layers.regularizers": "contrib.layers",
    "contrib.layers.python.layers.utils": "contrib.layers.utils",
    "contrib.legacy_seq2seq.python.ops.seq2seq": "contrib.legacy_seq2seq",
    "contrib.lookup.lookup_ops": "contrib.lookup",
    "contrib.losses.python.losses.loss_ops": "contrib.losses",
    "contrib.rnn.python.ops.core_rnn_cell": "contrib.rnn",
    "contrib.rnn.python.ops.lstm_ops": "contrib.rnn",
    "contrib.rnn.python.ops.rnn": "contrib.rnn",
    "contrib.rnn.python.ops.rnn_cell": "contrib.rnn",
    "contrib.seq2seq.python.ops.attention_wrapper": "contrib.seq2seq",
    "contrib.seq2seq.python.ops.basic_decoder": "contrib.seq2seq",
    "contrib.seq2seq.python.ops.beam_search_decoder": "contrib.seq2seq",
    "contrib.seq2seq.python.ops.decoder": "contrib.seq2seq",
    "contrib.seq2seq.python.ops.helper": "contrib.seq2seq",
    "contrib.seq2seq.python.ops.loss": "contrib.seq2seq",
    "contrib.slim.python.slim.learning": "contrib.slim.learning",
    "contrib.training.python.training.hparam": "contrib.training",
    "contrib.training.python.training.training": "contrib.training",
    "python.client.session": "",
    "python.client.timeline": "timeline",
    "python.data.ops.dataset_ops": "data",
    "python.data.ops.iterator_ops": "data",
    "python.data.ops.readers": "data",
    "python.framework.constant_op": "",
    "python.framework.dtypes": "",
    "python.framework.errors": "errors",
    "python.framework.function": "",
    "python.framework.graph_util": "graph_util",
    "python.framework.importer": "",
    "python.framework.load_library": "",
    "python.framework.ops": "",
    "python.framework.random_seed": "",
    "python.framework.sparse_tensor": "",
    "python.framework.tensor_shape": "",
    "python.layers.base": "layers",
    "python.layers.convolutional": "layers",
    "python.layers.core": "layers",
    "python.layers.layers": "layers",
    "python.layers.normalization": "layers",
    "python.layers.pooling": "layers",
    "python.lib.io.python_io": "python_io",
    "python.lib.io.tf_record": "python_io",
    "python.ops.array_ops": "",
    "python.ops.candidate_sampling_ops": "nn",
    "python.ops.check_ops": "",
    "python.ops.clip_ops": "",
    "python.ops.control_flow_ops": "",
    "python.ops.ctc_ops": "nn",
    "python.ops.custom_gradient": "",
    "python.ops.data_flow_ops": "",
    "python.ops.embedding_ops": "nn",
    "python.ops.functional_ops": "",
    "python.ops.gradients": "",
    "python.ops.gradients_impl": "",
    "python.ops.image_ops": "image",
    "python.ops.image_ops_impl": "image",
    "python.ops.init_ops": "",
    "python.ops.io_ops": "",
    "python.ops.logging_ops": "",
    "python.ops.losses.losses": "losses",
    "python.ops.losses.losses_impl": "losses",
    "python.ops.math_ops": "",
    "python.ops.metrics": "metrics",
    "python.ops.metrics_impl": "metrics",
    "python.ops.nn": "nn",
    "python.ops.nn_impl": "nn",
    "python.ops.nn_ops": "nn",
    "python.ops.numerics": "",
    "python.ops.parsing_ops": "",
    "python.ops.partitioned_variables": "",
    "python.ops.random_ops": "",
    "python.ops.rnn": "nn",
    "python.ops.rnn_cell": "nn.rnn_cell",
    "python.ops.rnn_cell_impl": "nn.rnn_cell",
    "python.ops.script_ops": "",
    "python.ops.sparse_ops": "",
    "python.ops.state_ops": "",
    "python.ops.string_ops": "",
    "python.ops.template": "",
    "python.ops.tensor_array_ops": "",
    "python.ops.variable_scope": "",
    "python.ops.variables": "",
    "python.platform.app": "app",
    "python.platform.flags": "flags",
    "python.platform.gfile": "gfile",
    "python.platform.googletest": "test",
    "python.platform.resource_loader": "resource_loader",
    "python.platform.sysconfig": "sysconfig",
    "python.platform.test": "test",
    "python.platform.tf_logging": "logging",
    "python.profiler.model_analyzer": "profiler",
    "python.profiler.option_builder": "profiler",
    "python.saved_model.builder": "saved_model",
    "python.saved_model.loader": "saved_model",
    "python.saved_model.saved_model": "saved_model",
    "python.saved_model.utils": "saved_model",
    "python.summary.summary": "summary",
    "python.training.adadelta": "train",
    "python.training.adagrad": "train",
    "python.training.adam": "train",
    "python.training.basic_session_run_hooks": "train",
    "python.training.checkpoint_management": "train",
    "python.training.checkpoint_utils": "train",
    "python.training.coordinator": "train",
    "python.training.ftrl": "train",
    "python.training.gradient_descent": "train",
    "python.training.input": "train",
    "python.training.learning_rate_decay": "train",
    "python.training.momentum": "train",
    "python.training.monitored_session": "train",
    "python.training.moving_averages": "train",
    "python.training.optimizer": "train",
    "python.training.queue_runner": "train",
    "python.training.queue_runner_impl": "train",
    "python.training.rmsprop": "train",
    "python.training.saver": "train",
    "python.training.server_lib": "train",
    "python.training.session_manager": "train",
    "python.training.session_run_hook": "train",
    "python.training.supervisor": "train",
    "python.training.sync_replicas_optimizer": "train",
    "python.training.training": "train",
    "python.training.training_util": "train",
    "python.util.nest": "nest",
}
"""TensorFlow's private modules, with the namespaces that have their public names."""


@dataclass(frozen=True)
class Use:
    """A use of a name.

    Attributes:
      line: the line number.
      name: the name, starting with `tf`.
      words: a remark, or "".
      missing: True if weft lacks the name.
      private: True if it is, or is in, a private module of TensorFlow, which `--write` replaces by
        the public namespace if possible.
    """

    line: int
    name: str
    words: str = ""
    missing: bool = False
    private: bool = False


@dataclass
class Source:
    """A source file.

    Attributes:
      text: the text, with its line ends.
      encoding: the file's encoding.
      tree: the syntax tree.
      names: for each name in the file, its path below TensorFlow's root.
    """

    text: str
    encoding: str
    tree: ast.Module
    names: dict[str, str] = field(default_factory=dict)

    def uses(self) -> list[Use]:
        """Return all uses of TensorFlow's names, ordered by line."""
        by_place: dict[tuple[int, str], Use] = {}
        for statement in ast.walk(self.tree):
            if isinstance(statement, ast.Import):
                self._learn_import(statement)
            elif isinstance(statement, ast.ImportFrom) and is_tensorflow(statement):
                for use in self._learn_from(statement):
                    by_place.setdefault((use.line, use.name), use)
        self._learn_assignments()
        for node in _outermost(self.tree):
            path = self._path(node)
            if path:
                use = look_up(node.lineno, path)
                by_place.setdefault((use.line, use.name), use)
        return sorted(by_place.values(), key=lambda use: (use.line, use.name))

    def _learn_import(self, statement: ast.Import) -> None:
        for alias in statement.names:
            path = below_root(alias.name)
            if path is None:
                continue
            if alias.asname is not None:
                self.names[alias.asname] = public_module(path)
            else:
                self.names["tensorflow"] = ""

    def _learn_from(self, statement: ast.ImportFrom) -> Iterator[Use]:
        inner_path = below_root(statement.module or "") or ""
        for alias in statement.names:
            if alias.name == "*":
                words = f"from {statement.module} import * hides which names are used"
                yield Use(statement.lineno, f"{statement.module}.*", words)
                continue
            path = f"{inner_path}.{alias.name}".lstrip(".")
            path = "" if path == "compat.v1" else path
            self.names[alias.asname or alias.name] = path
            if path:
                yield look_up(statement.lineno, path)

    def _learn_assignments(self) -> None:
        """Record assignments of namespaces to names, such as `slim = tf.contrib.slim`."""
        for statement in ast.walk(self.tree):
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                (target,) = statement.targets
                path = self._path(statement.value)
                if (
                    isinstance(target, ast.Name)
                    and path
                    and (is_module(path) or _make_use(path).missing)
                ):
                    self.names.setdefault(target.id, path)

    def _path(self, node: ast.AST) -> str | None:
        """Return the path below the root that an expression such as `tf.nn.relu` names."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.names:
            return None
        path = ".".join([self.names[node.id], *reversed(parts)]).strip(".")
        return path.removeprefix("compat.v1").lstrip(".")


def read(path: Path) -> Source:
    """Read and parse a file.

    Raises: OSError, SyntaxError, ValueError: it cannot be read.
    """
    data = path.read_bytes()
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    text = data.decode(encoding)
    return Source(text, encoding, ast.parse(text, str(path)))


def is_tensorflow(statement: ast.ImportFrom) -> bool:
    """Return True if a statement imports from TensorFlow."""
    return not statement.level and below_root(statement.module or "") is not None


def below_root(module: str) -> str | None:
    """Return the path of a module below TensorFlow's root; None for another package."""
    for root in ROOTS:
        if module == root:
            return ""
        if module.startswith(root + "."):
            return module[len(root) + 1 :]
    return None


def _outermost(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield the outermost chains of attributes."""
    inner: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            inner.add(node.value)
            if node not in inner:
                yield node


# ------------------------------------------------------------------------------ looking up


def look_up(line: int, path: str) -> Use:
    """Return the remarks about a path below the root."""
    public = public_path(path)
    if public is not None:
        use = _make_use(public)
        namespace = f"tf.{public}" if public else "tf"
        missing = "" if not use.missing else f", of which weft lacks tf.{use.name}"
        words = f"tensorflow.{path} is private; its public names are in {namespace}{missing}"
        return Use(line, path, words, use.missing, private=True)
    use = _make_use(path)
    return Use(line, use.name, use.words, use.missing)


def public_path(path: str) -> str | None:
    """Return the public path for a path in a private module; None for public paths."""
    for module in sorted(PRIVATE, key=len, reverse=True):
        if path == module or path.startswith(module + "."):
            return f"{PRIVATE[module]}{path[len(module) :]}".strip(".")
    return None


def public_module(path: str) -> str:
    """Return the public namespace with the names of a private module, or the path itself."""
    public = public_path(path)
    return public if public is not None and is_module(public) else path


@cache
def _make_use(path: str) -> Use:
    import weft

    target: object = weft
    prefix: list[str] = []
    words = ""
    for part in filter(None, path.split(".")):
        if not isinstance(target, ModuleType | type):
            break  # an attribute of a value
        prefix.append(part)
        name = ".".join(prefix)
        try:
            target = getattr(target, part)
        except AttributeError as error:
            hint = str(error).partition("; ")[2] if isinstance(target, ModuleType) else ""
            return Use(0, name, f"tf.{name} is not in weft{': ' if hint else ''}{hint}", True)
        except ModuleNotFoundError as error:
            return Use(0, name, f"tf.{name} is not installed: {error}", True)
        if name in DIFFERENT:
            words = f"tf.{name} differs: {DIFFERENT[name]}"
            return Use(0, name, words)
    return Use(0, ".".join(prefix), words)


def is_module(path: str) -> bool:
    """Return True if a path below the root is a namespace of weft."""
    import weft

    target: object = weft
    for part in filter(None, path.split(".")):
        target = getattr(target, part, None)
    return isinstance(target, ModuleType)
