"""Nodes that may be made to wait for others, if some nodes already wait."""

from __future__ import annotations

from typing import Any

import weft as wf
from weft_graph.passes import prune
from weft_graph.passes.deadlock_analysis import BlockingOrder


def step() -> tuple[dict[str, Any], list[Any]]:
    with wf.Graph().as_default():
        queue = wf.FIFOQueue(10, [wf.float32], [[4]])
        taken = wf.identity(queue.dequeue(), name="taken")
        y = wf.sin(taken, name="y")
        v = wf.get_variable("v", [4], initializer=wf.zeros_initializer())
        change = wf.assign(v, y, name="change")
        given = wf.zeros([4], name="given")
        z = wf.exp(given + wf.random_uniform([4]), name="z")
        enqueue = queue.enqueue(z)
        nodes = prune([], [y, change], [enqueue]).live_nodes()
    return {node.name: node for node in nodes}, nodes


def test_what_leads_to_help_does_not_follow_what_waits() -> None:
    named, nodes = step()
    waiting = BlockingOrder(nodes)
    behind = waiting.blocking_predecessors(named["y"])
    assert behind and behind == waiting.blocking_predecessors(named["taken"])
    assert not waiting.blocking_predecessors(named["z"])
    assert not waiting.may_follow(named["z"], behind)  # it leads to the enqueue
    assert waiting.may_follow(named["y"], behind)  # it is behind the dequeue anyway
    assert waiting.may_follow(named["v"], behind)  # a variable's change helps nobody
    assert waiting.may_follow(named["z"], 0)


def test_it_comes_first() -> None:
    named, nodes = step()
    ordered = BlockingOrder(nodes).first(nodes)
    assert sorted(node.name for node in ordered) == sorted(named)
    assert ordered.index(named["z"]) < ordered.index(named["fifo_queue_Dequeue"])


def test_without_waiting_all_may_follow_all() -> None:
    with wf.Graph().as_default():
        v = wf.get_variable("v", [4], initializer=wf.zeros_initializer())
        z = wf.exp(wf.random_uniform([4]))
        nodes = prune([], [wf.assign(v, z)], []).live_nodes()
    waiting = BlockingOrder(nodes)
    assert waiting.first(nodes) == nodes
    assert all(
        not waiting.blocking_predecessors(node) and waiting.may_follow(node, 0) for node in nodes
    )
