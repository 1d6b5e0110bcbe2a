"""The health of a peer, as derived from its answers."""

from __future__ import annotations

from weft_distrib.liveness.peer_liveness import LivenessState, Verdict


def test_a_peer_that_comes_round_is_alive() -> None:
    pulse = LivenessState(0, 4)
    for now in range(1, 20):
        pulse.answered(now, now, 0, False)
        assert pulse.verdict(now + 0.5) is Verdict.ALIVE


def test_a_peer_that_computes_with_the_lock_held_is_alive() -> None:
    pulse = LivenessState(0, 4)
    for now in range(1, 20):
        pulse.answered(now, 7, 100 * now, False)
        assert pulse.verdict(now) is Verdict.ALIVE


def test_a_stopped_peer_is_lost_though_it_is_answered_for() -> None:
    pulse = LivenessState(0, 4)
    for now in range(1, 5):
        pulse.answered(now, 7, 100, True)
        assert pulse.verdict(now) is Verdict.ALIVE
    pulse.answered(5, 7, 100, True)
    assert pulse.verdict(5) is Verdict.STOPPED
    pulse.answered(6, 8, 101, False)
    assert pulse.verdict(6) is Verdict.ALIVE


def test_a_peer_that_neither_computes_nor_comes_round_is_lost() -> None:
    pulse = LivenessState(0, 4)
    for now in range(1, 8):
        pulse.answered(now, 7, 100, False)
    assert pulse.verdict(5) is Verdict.ALIVE and pulse.verdict(5.5) is Verdict.STUCK


def test_silence() -> None:
    pulse = LivenessState(0, 4)
    assert pulse.verdict(4) is Verdict.ALIVE and pulse.verdict(4.5) is Verdict.SILENT
    pulse.answered(5, 1, 1, False)
    assert pulse.verdict(8) is Verdict.ALIVE and pulse.verdict(9.5) is Verdict.SILENT


def test_who_was_away_itself_holds_nothing_against_the_peer() -> None:
    pulse = LivenessState(0, 4)
    pulse.answered(1, 1, 1, False)
    pulse.pardon(9, 8)
    assert pulse.verdict(9) is Verdict.ALIVE
    pulse.pardon(10, 99)
    assert pulse.verdict(14) is Verdict.ALIVE and pulse.verdict(14.5) is Verdict.SILENT
