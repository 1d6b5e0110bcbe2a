"""Iterators, from which steps take the elements of a dataset."""

from __future__ import annotations

__all__ = [
    "Iterator",
    "get_output_classes",
    "get_output_shapes",
    "get_output_types",
    "make_initializable_iterator",
    "make_one_shot_iterator",
]

from typing import Any

from weft_graph.ir import nest
from weft_graph.ir.builder import create, out
from weft_graph.ir.node import Node, Output
from weft_io.arguments import scalar
from weft_io.data import specs
from weft_io.data.functions import factory_of
from weft_tensor import dtypes, errors


class Iterator(specs.Elements):
    """An iterator over a dataset.

    Args:
      iterator_resource: resource, shape ().
      initializer: node that starts the iteration, or None.
      output_types, output_shapes, output_classes: types, shapes and classes of elements.

    Examples:
      >>> iterator = wf.data.Dataset.range(3).make_initializable_iterator()
      >>> element = iterator.get_next()
      >>> with wf.Session() as session:
      ...     session.run(iterator.initializer)
      ...     session.run([element])
      ...     session.run([element])
      [np.int64(0)]
      [np.int64(1)]
    """

    def __init__(
        self,
        iterator_resource: Output,
        initializer: Node | None,
        output_types: Any,
        output_shapes: Any,
        output_classes: Any,
    ) -> None:
        self._set(
            iterator_resource,
            initializer,
            specs.form_from(output_types, output_shapes, output_classes),
        )

    def _set(self, resource: Output, initializer: Node | None, element: Any) -> None:
        self._iterator_resource = resource
        self._initializer = initializer
        self._element = element
        with resource.graph.as_default(), resource.graph.colocate_with(resource.op):
            self._string_handle = out("IteratorToStringHandle", [resource])

    @classmethod
    def _of(cls, resource: Output, initializer: Node | None, element: Any) -> Iterator:
        result = cls.__new__(cls)
        result._set(resource, initializer, element)
        return result

    @staticmethod
    def from_structure(
        output_types: Any,
        output_shapes: Any = None,
        shared_name: str | None = None,
        output_classes: Any = None,
    ) -> Iterator:
        """Return an iterator for several datasets; `make_initializer` selects one.

        Args:
          output_types: a structure of element types.
          output_shapes: a structure of shapes compatible with the elements; unknown by default.
          shared_name: the name it is shared under among sessions.
          output_classes: a structure of classes, Tensor or SparseTensor.
        """
        element = specs.form_from(output_types, output_shapes, output_classes)
        return Iterator._of(_resource(element, shared_name), None, element)

    @staticmethod
    def from_string_handle(
        string_handle: Any,
        output_types: Any,
        output_shapes: Any = None,
        output_classes: Any = None,
    ) -> Iterator:
        """Return an iterator that refers to another iterator by a string handle, fed at run time.

        Args:
          string_handle: string, shape ().
          output_types, output_shapes, output_classes: types, shapes and classes of its elements.
        """
        element = specs.form_from(output_types, output_shapes, output_classes)
        handle = scalar(string_handle, dtypes.string, "string_handle")
        resource = out("IteratorFromStringHandleV2", [handle], specs.attrs_of(element))
        return Iterator._of(resource, None, element)

    @property
    def initializer(self) -> Node:
        """The node that starts the iteration.

        Raises: InvalidArgumentError: the iterator needs no initializer, or has one for each
          dataset.
        """
        if self._initializer is None:
            raise errors.InvalidArgumentError(
                "Iterator does not have an initializer. This usually indicates that you are using "
                "a one-shot iterator."
            )
        return self._initializer

    def make_initializer(self, dataset: Any, name: str | None = None) -> Node:
        """Return a node that starts the iteration over a dataset.

        Raises: InvalidTypeError: `dataset` is not a dataset, or its elements have another form.
        """
        _check_dataset(dataset)
        try:
            nest.assert_same_structure(self._element, dataset._element)
            fits = specs.is_compatible(self._element, dataset._element)
        except (errors.InvalidTypeError, errors.InvalidArgumentError):
            fits = False
        if not fits:
            raise errors.InvalidTypeError(
                f"Expected output types {self.output_types!r} and shapes {self.output_shapes!r} "
                f"but got dataset with output types {dataset.output_types!r} and shapes "
                f"{dataset.output_shapes!r}"
            )
        variant = dataset._variant_tensor
        with variant.graph.colocate_with(self._iterator_resource.op):
            return create("MakeIterator", [variant, self._iterator_resource], name=name)

    def get_next(self, name: str | None = None) -> Any:
        """Return the next element; each step that uses it consumes one.

        Returns: a structure of tensors.
        Raises (when it runs): OutOfRangeError: "End of sequence"; FailedPreconditionError: it was
          not initialized; any error of the pipeline, after which the next step continues with the
          next element.
        """
        attrs = specs.attrs_of(self._element)
        node = create("IteratorGetNext", [self._iterator_resource], attrs, name)
        return specs.rebuild_structure(self._element, node.outputs)

    def string_handle(self, name: str | None = None) -> Output:
        """Return the string handle: string, shape (); without `name` always the same tensor."""
        if name is None:
            return self._string_handle
        return out("IteratorToStringHandle", [self._iterator_resource], name=name)


def _resource(element: Any, shared_name: str | None) -> Output:
    attrs = {**specs.attrs_of(element), "shared_name": shared_name or "", "container": ""}
    return out("IteratorV2", (), attrs)


def initializable(dataset: Any, shared_name: str | None) -> Iterator:
    """Return an iterator over a dataset that starts when its initializer runs."""
    _check_dataset(dataset)
    variant = dataset._variant_tensor
    with variant.graph.as_default():
        resource = _resource(dataset._element, shared_name)
        with variant.graph.colocate_with(resource.op):
            initializer = create("MakeIterator", [variant, resource])
    return Iterator._of(resource, initializer, dataset._element)


def one_shot(dataset: Any) -> Iterator:
    """Return an iterator that needs no initializer."""
    _check_dataset(dataset)
    variant = dataset._variant_tensor
    with variant.graph.as_default():
        attrs = {**specs.attrs_of(dataset._element), "dataset_factory": factory_of(variant)}
        resource = out("OneShotIterator", (), attrs)
    return Iterator._of(resource, None, dataset._element)


# ------------------------------------------------------------------ the methods as functions


def make_one_shot_iterator(dataset: Any) -> Iterator:
    """Return an iterator that needs no initializer; see `dataset.make_one_shot_iterator()`.

    Args:
      dataset: the dataset to iterate over.
    Raises: InvalidTypeError: it is not a dataset; InvalidArgumentError: it uses placeholders or
      variables, which require an initializable iterator.

    Examples:
      >>> element = wf.data.make_one_shot_iterator(wf.data.Dataset.range(3)).get_next()
      >>> with wf.Session() as session:
      ...     session.run([element])
      ...     session.run([element])
      [np.int64(0)]
      [np.int64(1)]
    """
    return one_shot(dataset)


def make_initializable_iterator(dataset: Any, shared_name: str | None = None) -> Iterator:
    """Return an iterator over a dataset that starts, or starts over, when its initializer runs.

    As `dataset.make_initializable_iterator(shared_name)`.

    Args:
      dataset: the dataset to iterate over.
      shared_name: the name it is shared under among sessions.
    Raises: InvalidTypeError: it is not a dataset.

    Examples:
      >>> first = wf.placeholder(wf.int64, [])
      >>> iterator = wf.data.make_initializable_iterator(wf.data.Dataset.range(first, 10))
      >>> element = iterator.get_next()
      >>> with wf.Session() as session:
      ...     session.run(iterator.initializer, {first: 7})
      ...     session.run(element)
      np.int64(7)
    """
    return initializable(dataset, shared_name)


def get_output_types(dataset_or_iterator: Any) -> Any:
    """Return the element types of the tensors in an element, in its structure.

    Args:
      dataset_or_iterator: a dataset or an iterator.
    Raises: InvalidTypeError: it is neither.

    Examples:
      >>> dataset = wf.data.Dataset.from_tensor_slices({"a": [[1.0, 2.0]]})
      >>> wf.data.get_output_types(dataset)
      {'a': weft.float32}
    """
    return _check_form(dataset_or_iterator).output_types


def get_output_shapes(dataset_or_iterator: Any) -> Any:
    """Return the shapes of the tensors in an element, in its structure.

    Args:
      dataset_or_iterator: a dataset or an iterator.
    Raises: InvalidTypeError: it is neither.

    Examples:
      >>> dataset = wf.data.Dataset.from_tensor_slices({"a": [[1.0, 2.0]]})
      >>> wf.data.get_output_shapes(dataset)
      {'a': TensorShape([Dimension(2)])}
    """
    return _check_form(dataset_or_iterator).output_shapes


def get_output_classes(dataset_or_iterator: Any) -> Any:
    """Return the classes, Tensor or SparseTensor, of the parts of an element, in its structure.

    Args:
      dataset_or_iterator: a dataset or an iterator.
    Raises: InvalidTypeError: it is neither.

    Examples:
      >>> dataset = wf.data.Dataset.from_tensor_slices({"a": [[1.0, 2.0]]})
      >>> wf.data.get_output_classes(dataset) == {"a": wf.Tensor}
      True
    """
    return _check_form(dataset_or_iterator).output_classes


def _check_dataset(dataset: Any) -> None:
    if not isinstance(dataset, specs.DatasetBase):
        raise errors.InvalidTypeError(f"a Dataset is required, got {dataset!r}")


def _check_form(dataset_or_iterator: Any) -> specs.Elements:
    if not isinstance(dataset_or_iterator, Iterator):
        _check_dataset(dataset_or_iterator)
    elements: specs.Elements = dataset_or_iterator
    return elements
