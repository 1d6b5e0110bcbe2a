"""A guard stops before an update with NaN or infinity, and names the node that made it."""

import numpy as np
import pytest

import weft as wf
from weft_io.porting import NonFiniteError, NumericsGuard


@pytest.fixture(autouse=True)
def own_graph():
    with wf.Graph().as_default():
        yield


def network(x, optimizer=None, sparse=False):
    if sparse:
        table = wf.get_variable("table", [10, 3], initializer=wf.ones_initializer())
        hidden = wf.nn.embedding_lookup(table, wf.constant([1, 1, 4])) * x
    else:
        hidden = wf.get_variable("weights", [3], initializer=wf.ones_initializer()) * x
    loss = wf.reduce_sum(wf.log(hidden, name="logarithm") * 2.0)
    guard = NumericsGuard(optimizer or wf.train.MomentumOptimizer(0.1, 0.9))
    step = wf.train.get_or_create_global_step()
    return guard, guard.minimize(loss, step)


def initialized():
    session = wf.Session()
    session.run([wf.global_variables_initializer(), wf.local_variables_initializer()])
    return session


@pytest.mark.parametrize("jit", ["off", "now"])
@pytest.mark.parametrize("sparse", [False, True])
def test_node_is_named_and_nothing_is_updated(monkeypatch, jit, sparse):
    monkeypatch.setenv("WEFT_JIT", jit)
    x = wf.placeholder(wf.float32, [3])
    guard, train = network(x, sparse=sparse)
    session = initialized()
    guard.run(session, train, {x: [1.0, 2.0, 3.0]})
    before = session.run(wf.global_variables())
    words = "Log 'logarithm' made NaN or infinity in step 1"
    with pytest.raises(NonFiniteError, match=words) as raised:
        guard.run(session, train, {x: [1.0, -2.0, 0.0]})
    for old, new in zip(before, session.run(wf.global_variables()), strict=True):
        np.testing.assert_array_equal(old, new)
    (source,), (result,) = raised.value.input_statistics, raised.value.output_statistics
    assert source.num_nan == source.num_infinite == 0 and source.minimum < 0
    assert result.num_nan and result.num_infinite
    assert "test_nonfinite.py" in raised.value.line
    guard.run(session, train, {x: [1.0, 2.0, 3.0]})


def test_batch_of_a_dataset_is_kept_for_the_search():
    data = wf.data.Dataset.from_tensor_slices(np.array([[1, 2, 3], [1, -2, 3], [1, 1, 1]], "f4"))
    x = data.make_one_shot_iterator().get_next()
    guard, train = network(x)
    session = initialized()
    guard.run(session, train)
    with pytest.raises(NonFiniteError, match="logarithm") as raised:
        guard.run(session, train)
    assert raised.value.input_statistics[0].minimum == -2.0 * session.run("weights:0")[1]
    guard.run(session, train)  # the third batch: the search has read none


def test_batch_of_a_queue_is_kept_for_the_search():
    queue = wf.FIFOQueue(5, wf.float32, [3])
    fill = queue.enqueue_many(np.array([[1, 2, 3], [1, -2, 3]], "f4"))
    guard, train = network(queue.dequeue())
    session = initialized()
    session.run(fill)
    guard.run(session, train)
    with pytest.raises(NonFiniteError, match="logarithm"):
        guard.run(session, train)


def test_other_errors_pass_through():
    x = wf.placeholder(wf.float32, [None])
    guard, train = network(x)
    session = initialized()
    with pytest.raises(wf.errors.InvalidArgumentError) as raised:
        guard.run(session, train, {x: [1.0, 2.0]})
    assert not isinstance(raised.value, NonFiniteError)


def test_guard_works_in_a_monitored_session():
    x = wf.placeholder(wf.float32, [3])
    guard, train = network(x, wf.train.AdamOptimizer())
    with wf.train.MonitoredTrainingSession() as session:
        guard.run(session, train, {x: [1.0, 2.0, 3.0]})
        with pytest.raises(NonFiniteError, match="logarithm"):
            guard.run(session, train, {x: [1.0, -2.0, 3.0]})


def test_guard_shows_the_attributes_of_the_optimizer():
    guard = NumericsGuard(wf.train.AdamOptimizer())
    assert guard.get_slot_names() == []
