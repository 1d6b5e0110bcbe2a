"""A program's source: the names of TensorFlow that it uses, without running it."""

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
    "contrib.framework.python.framework": "contrib.framework",
    "contrib.framework.python.ops": "contrib.framework",
    "contrib.layers.python.layers": "contrib.layers",
    "contrib.layers.python.layers.initializers": "contrib.layers",
    "contrib.layers.python.layers.layers": "contrib.layers",
    "contrib.layers.python.layers.regularizers": "contrib.layers",
    "contrib.layers.python.layers.utils": "contrib.layers.utils",
    "contrib.legacy_seq2seq.python.ops.seq2seq": "contrib.legacy_seq2seq",
    "contrib.rnn.python.ops.core_rnn_cell": "contrib.rnn",
    "contrib.rnn.python.ops.rnn_cell": "contrib.rnn",
    "contrib.seq2seq.python.ops.attention_wrapper": "contrib.seq2seq",
    "contrib.seq2seq.python.ops.beam_search_decoder": "contrib.seq2seq",
    "contrib.slim.python.slim.learning": "contrib.slim.learning",
    "python.client.session": "",
    "python.framework.constant_op": "",
    "python.framework.dtypes": "",
    "python.framework.errors": "errors",
    "python.framework.function": "",
    "python.framework.graph_util": "graph_util",
    "python.framework.ops": "",
    "python.framework.tensor_shape": "",
    "python.layers.base": "layers",
    "python.layers.core": "layers",
    "python.ops.array_ops": "",
    "python.ops.clip_ops": "",
    "python.ops.control_flow_ops": "",
    "python.ops.embedding_ops": "nn",
    "python.ops.init_ops": "",
    "python.ops.io_ops": "",
    "python.ops.math_ops": "",
    "python.ops.nn": "nn",
    "python.ops.nn_ops": "nn",
    "python.ops.random_ops": "",
    "python.ops.rnn": "nn",
    "python.ops.rnn_cell": "nn.rnn_cell",
    "python.ops.rnn_cell_impl": "nn.rnn_cell",
    "python.ops.sparse_ops": "",
    "python.ops.state_ops": "",
    "python.ops.string_ops": "",
    "python.ops.tensor_array_ops": "",
    "python.ops.variable_scope": "",
    "python.ops.variables": "",
    "python.platform.app": "app",
    "python.platform.flags": "flags",
    "python.platform.gfile": "gfile",
    "python.platform.tf_logging": "logging",
    "python.summary.summary": "summary",
    "python.training.moving_averages": "train",
    "python.training.optimizer": "train",
    "python.training.saver": "train",
    "python.training.training": "train",
    "python.util.nest": "nest",
}
"""TensorFlow's own modules, and the namespaces that have their public names."""


@dataclass(frozen=True)
class Use:
    """A use of a name.

    Attributes:
      line: its number.
      name: from `tf` on.
      words: what there is to say of it, or "".
      missing: whether weft lacks it.
    """

    line: int
    name: str
    words: str = ""
    missing: bool = False


@dataclass
class Source:
    """A file.

    Attributes:
      text: as it is, with its own ends of lines.
      encoding: that it is in.
      tree: what it says.
      names: what names in it stand for, by paths below TensorFlow's root.
    """

    text: str
    encoding: str
    tree: ast.Module
    names: dict[str, str] = field(default_factory=dict)

    def uses(self) -> list[Use]:
        """All uses of TensorFlow's names, by lines."""
        found: dict[tuple[int, str], Use] = {}
        for statement in ast.walk(self.tree):
            if isinstance(statement, ast.Import):
                self._learn_import(statement)
            elif isinstance(statement, ast.ImportFrom) and is_tensorflow(statement):
                for use in self._learn_from(statement):
                    found.setdefault((use.line, use.name), use)
        self._learn_assignments()
        for node in _outermost(self.tree):
            path = self._path(node)
            if path:
                use = look_up(node.lineno, path)
                found.setdefault((use.line, use.name), use)
        return sorted(found.values(), key=lambda use: (use.line, use.name))

    def _learn_import(self, statement: ast.Import) -> None:
        for alias in statement.names:
            path = below_root(alias.name)
            if path is None:
                continue
            if alias.asname is not None:
                self.names[alias.asname] = path
            else:
                self.names["tensorflow"] = ""

    def _learn_from(self, statement: ast.ImportFrom) -> Iterator[Use]:
        inside = below_root(statement.module or "") or ""
        for alias in statement.names:
            if alias.name == "*":
                words = f"from {statement.module} import * hides which names are used"
                yield Use(statement.lineno, f"{statement.module}.*", words)
                continue
            path = f"{inside}.{alias.name}".lstrip(".")
            path = "" if path == "compat.v1" else path
            self.names[alias.asname or alias.name] = path
            if path:
                yield look_up(statement.lineno, path)

    def _learn_assignments(self) -> None:
        """Names that a plain assignment gives to namespaces, such as `slim = tf.contrib.slim`."""
        for statement in ast.walk(self.tree):
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                (target,) = statement.targets
                path = self._path(statement.value)
                if (
                    isinstance(target, ast.Name)
                    and path
                    and (is_module(path) or _found(path).missing)
                ):
                    self.names.setdefault(target.id, path)

    def _path(self, node: ast.AST) -> str | None:
        """The path that an expression such as `tf.nn.relu` names, below the root."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.names:
            return None
        path = ".".join([self.names[node.id], *reversed(parts)]).strip(".")
        return path.removeprefix("compat.v1").lstrip(".")


def read(path: Path) -> Source:
    """A file of the disk.

    Raises: OSError, SyntaxError, ValueError: it cannot be read.
    """
    data = path.read_bytes()
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    text = data.decode(encoding)
    return Source(text, encoding, ast.parse(text, str(path)))


def is_tensorflow(statement: ast.ImportFrom) -> bool:
    """Whether a statement imports from TensorFlow."""
    return not statement.level and below_root(statement.module or "") is not None


def below_root(module: str) -> str | None:
    """The path of a module below TensorFlow's root; None for another package's."""
    for root in ROOTS:
        if module == root:
            return ""
        if module.startswith(root + "."):
            return module[len(root) + 1 :]
    return None


def _outermost(tree: ast.AST) -> Iterator[ast.expr]:
    """Chains of attributes, without those inside them."""
    inner: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            inner.add(node.value)
            if node not in inner:
                yield node


# ------------------------------------------------------------------------------ looking up


def look_up(line: int, path: str) -> Use:
    """What there is to say of a path below the root."""
    public = public_path(path)
    if public is not None:
        found = _found(public)
        where = f"tf.{public}" if public else "tf"
        missing = "" if not found.missing else f", of which weft lacks tf.{found.name}"
        words = f"tensorflow.{path} is private; what it has is in {where}{missing}"
        return Use(line, path, words, True)
    found = _found(path)
    return Use(line, found.name, found.words, found.missing)


def public_path(path: str) -> str | None:
    """The public path of one in TensorFlow's own modules; None for what is public."""
    for module in sorted(PRIVATE, key=len, reverse=True):
        if path == module or path.startswith(module + "."):
            return f"{PRIVATE[module]}{path[len(module) :]}".strip(".")
    return None


@cache
def _found(path: str) -> Use:
    import weft

    place: object = weft
    known: list[str] = []
    words = ""
    for part in filter(None, path.split(".")):
        if not isinstance(place, ModuleType | type):
            break  # an attribute of a value
        known.append(part)
        name = ".".join(known)
        try:
            place = getattr(place, part)
        except AttributeError as error:
            hint = str(error).partition("; ")[2] if isinstance(place, ModuleType) else ""
            return Use(0, name, f"tf.{name} is not in weft{': ' if hint else ''}{hint}", True)
        except ModuleNotFoundError as error:
            return Use(0, name, f"tf.{name} is not installed: {error}", True)
        if name in DIFFERENT:
            words = f"tf.{name} differs: {DIFFERENT[name]}"
            return Use(0, name, words)
    return Use(0, ".".join(known), words)


def is_module(path: str) -> bool:
    """Whether a path below the root is a namespace of weft's."""
    import weft

    place: object = weft
    for part in filter(None, path.split(".")):
        place = getattr(place, part, None)
    return isinstance(place, ModuleType)
