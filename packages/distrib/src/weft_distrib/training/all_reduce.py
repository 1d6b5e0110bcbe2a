"""Synchronous training without parameter servers: replicas sum their gradients."""

from __future__ import annotations

__all__ = ["AllReduceOptimizer"]

from collections.abc import Iterable, Iterator
from typing import Any, Final

from weft_autodiff.optimizers.optimizer import Optimizer
from weft_distrib.ops.collective import all_gather, all_reduce, broadcast_receive, broadcast_send
from weft_graph.ir.default_graph import device, get_default_graph, name_scope
from weft_graph.ir.indexed_slices import IndexedSlices
from weft_graph.ir.node import Node, Output
from weft_graph.ops.control import group
from weft_graph.ops.join import concat, split
from weft_graph.ops.shapes import reshape
from weft_graph.variables.reference import global_variables
from weft_io.training.hook import SessionRunHook
from weft_tensor import errors

BUCKET_BYTES: Final = 4 << 20
"""Default maximum size of a bucket of gradients that are summed together: fewer messages, but later
ones.
"""

_COLLECTION = "weft_all_reduce_groups"


class AllReduceOptimizer(Optimizer):
    """Optimizer wrapper that applies the mean of the gradients of all replicas.

    Each replica has a copy of the variables on its own device, and applies the same updates.
    Gradients are exchanged directly between replicas, without a server. All replicas build the same
    graph, each in its own program or one after the other in a single program.

    Args:
      opt: the optimizer that computes the updates.
      num_replicas: the number of replicas.
      bucket_bytes: the maximum size in bytes of gradients that are summed together.
      communication_hint: as for `all_reduce`.
      timeout: the seconds to wait for other replicas; 0 for no limit.
      group_key: the group key of the replicas; by default the first unused one in the graph. It is
        required if one graph has several replicas; all use the same key.
      name: name of the nodes.
    Raises: InvalidArgumentError: `num_replicas` is less than 1.
    Source: "Bringing HPC techniques to deep learning", A. Gibiansky, 2017.

    Examples:
      >>> trained = []
      >>> for i in range(2):
      ...     with wf.device(f"/cpu:{i}"):
      ...         w = wf.Variable(4.0)
      ...         opt = weft_distrib.AllReduceOptimizer(
      ...             wf.train.GradientDescentOptimizer(0.25), num_replicas=2, group_key=1)
      ...         trained += [w, opt.minimize((w - i) * w, var_list=[w])]
      >>> with wf.Session(config=wf.ConfigProto(device_count={"CPU": 2})) as session:
      ...     session.run(wf.global_variables_initializer())
      ...     session.run(trained[1::2])
      ...     session.run(trained[::2])
      [None, None]
      [np.float32(2.125), np.float32(2.125)]
    """

    def __init__(
        self,
        opt: Optimizer,
        num_replicas: int,
        bucket_bytes: int = BUCKET_BYTES,
        communication_hint: str = "auto",
        timeout: float = 0,
        group_key: int | None = None,
        name: str = "all_reduce",
    ) -> None:
        super().__init__(False, name)
        if num_replicas < 1:
            raise errors.InvalidArgumentError(f"num_replicas must be 1 or more, got {num_replicas}")
        if group_key is None:
            collection_ref = get_default_graph().get_collection_ref(_COLLECTION)
            group_key = len(collection_ref) + 1
            collection_ref.append(group_key)
        self._opt = opt
        self._replicas = num_replicas
        self._bucket_bytes = bucket_bytes
        self._options: dict[str, Any] = {
            "communication_hint": communication_hint,
            "timeout": timeout,
        }
        self._group = group_key
        self._instances = 0

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the gradients of this replica only, like the wrapped optimizer."""
        return self._opt.compute_gradients(*args, **kwargs)

    def apply_gradients(
        self, grads_and_vars: Iterable[Any], global_step: Any = None, name: str | None = None
    ) -> Node:
        """Add the nodes that apply the mean of the gradients of all replicas.

        Args:
          grads_and_vars: the result of `compute_gradients`; pairs with None are ignored.
          global_step: an integer variable that counts the updates.
          name: the name of the returned node.
        Returns: the node that applies the update.
        Raises: InvalidArgumentError: there is no gradient.
        """
        pairs = [(grad, var) for grad, var in grads_and_vars if grad is not None]
        if not pairs:
            raise errors.InvalidArgumentError("No gradients provided for any variable.")
        means: dict[int, Any] = {}
        with name_scope(self._name):
            # The last gradients are there first, and are on their way while others are computed.
            for bucket in self._buckets(list(enumerate(pairs))[::-1]):
                for (i, _), mean in zip(bucket, self._all_reduce_bucket(bucket), strict=True):
                    means[i] = mean
        mean_pairs = [(means[i], var) for i, (_, var) in enumerate(pairs)]
        updated: Node = self._opt.apply_gradients(mean_pairs, global_step, name)
        return updated

    def _buckets(self, numbered: list[Any]) -> Iterator[list[Any]]:
        """Group neighboring gradients of the same type and device, which are summed together."""
        bucket: list[Any] = []
        filled, kind = 0, None
        for item in numbered:
            grad, var = item[1]
            count = None if isinstance(grad, IndexedSlices) else grad.shape.num_elements()
            size = self._bucket_bytes if count is None else count * grad.dtype.size
            bucket_key = (grad.dtype, var.device)
            if bucket and (filled + size > self._bucket_bytes or bucket_key != kind):
                yield bucket
                bucket, filled = [], 0
            bucket.append(item)
            filled, kind = filled + size, bucket_key
        yield bucket

    def _all_reduce_bucket(self, bucket: list[Any]) -> list[Any]:
        grads = [grad for _, (grad, _) in bucket]
        with device(bucket[0][1][1].device):
            if isinstance(grads[0], IndexedSlices):
                return [self._all_gather_rows(grads[0])]
            if len(grads) == 1:
                return [self._mean(grads[0])]
            sizes = [grad.shape.num_elements() for grad in grads]
            flat = self._mean(concat([reshape(grad, [-1]) for grad in grads], 0))
            parts = split(flat, sizes, 0)
            return [reshape(p, g.shape.as_list()) for p, g in zip(parts, grads, strict=True)]

    def _mean(self, value: Output) -> Output:
        return all_reduce(value, *self._keys(), "Add", "Div", **self._options)

    def _all_gather_rows(self, grad: IndexedSlices) -> IndexedSlices:
        """Gather the rows of all replicas, which must have the same number of rows."""
        rows = all_gather(grad.values / self._replicas, *self._keys(), **self._options)
        indices = all_gather(grad.indices, *self._keys(), **self._options)
        return IndexedSlices(rows, indices, grad.dense_shape)

    def _keys(self) -> tuple[int, int, int]:
        self._instances += 1
        return self._replicas, self._group, self._instances

    def make_session_run_hook(self, is_chief: bool) -> SessionRunHook:
        """Return a hook that broadcasts the chief's variables whenever a session starts.

        Args:
          is_chief: True for exactly one replica, whose variables, from its initializers or its
            checkpoint, all replicas receive.

        Examples:
          >>> w = wf.Variable(4.0)
          >>> opt = weft_distrib.AllReduceOptimizer(wf.train.GradientDescentOptimizer(0.25), 1)
          >>> train = opt.minimize(w * w)
          >>> hook = opt.make_session_run_hook(is_chief=True)
          >>> with wf.train.MonitoredTrainingSession(hooks=[hook]) as session:
          ...     session.run(train)
        """
        return _BroadcastHook(self, is_chief)

    def share_variables(self, is_chief: bool) -> Node:
        """Return a node that broadcasts the chief's variables; each replica must run its own node.

        Args:
          is_chief: see `make_session_run_hook`.
        """
        shared = []
        with name_scope(f"{self._name}_share"):
            for var in global_variables():
                with device(var.device):
                    shared.append(self._share(var, is_chief))
        return group(*shared)

    def _share(self, var: Any, is_chief: bool) -> Any:
        if is_chief:
            return broadcast_send(var.read_value(), *self._keys(), **self._options)
        actual = broadcast_receive(var.shape, var.dtype.base_dtype, *self._keys(), **self._options)
        return var.assign(actual)

    # ------------------------------------------------------------------- delegation

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """See the wrapped optimizer."""
        return self._opt.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> list[str]:
        """See the wrapped optimizer."""
        return self._opt.get_slot_names(*args, **kwargs)

    def variables(self) -> list[Any]:
        """See the wrapped optimizer."""
        return self._opt.variables()


class _BroadcastHook(SessionRunHook):
    """Hook that broadcasts the chief's variables to all replicas."""

    def __init__(self, optimizer: AllReduceOptimizer, is_chief: bool) -> None:
        self._optimizer, self._is_chief = optimizer, is_chief

    def begin(self) -> None:
        self._share = self._optimizer.share_variables(self._is_chief)

    def after_create_session(self, session: Any, coord: Any) -> None:
        session.run(self._share)
