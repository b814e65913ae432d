"""Pairs: which are drawn, asked about once, counted as often as drawn, and let go when no label comes."""

import collections

import numpy as np

from oni_jax.rewards.oni.pairs import NUM_PAIRS_PER_BATCH, TIE, PairDraws
from oni_jax.types import Annotation, CaptionBatch
from tests.support.labelled import labelled

T, B = 32, 32


def captions_of(messages, seed=0) -> CaptionBatch:
    rng = np.random.default_rng(seed)
    index = rng.integers(0, len(messages), (T, B)).astype(np.int32)
    return CaptionBatch(messages, index, {"place": np.arange(T * B).reshape(T, B, 1)})


def draws_of(subsample=1, distinct=False, max_waiting=1000, seed=0, names=()) -> PairDraws:
    return PairDraws(names, subsample, distinct, max_waiting, seed)


TEXTS = [f"message {i}".encode() for i in range(40)]


def text(row, side) -> bytes:
    return row["message"][side].tobytes().rstrip(b"\0")


def answer(draws, label):
    return draws.ingest([labelled(item, label) for item in draws.waiting()])


def test_a_pair_is_asked_about_once_and_in_one_order_and_counts_each_time():
    draws = draws_of()
    captions = captions_of(TEXTS[:3])
    rows = [row for _ in range(20) for row in draws.draw(captions)]
    asked = draws.waiting()
    assert len(asked) == 3 == len({frozenset(item) for item in asked})  # 3 messages have 3 pairs
    ties = len(rows)
    assert all(row["label"] == TIE and text(row, 0) == text(row, 1) for row in rows)  # equal: known at once
    rows += answer(draws, 1)
    assert len(rows) == 20 * NUM_PAIRS_PER_BATCH and ties > 20
    assert not draws.waiting()
    later = draws.draw(captions)  # drawn again: not asked, but counted, under the same label
    assert not draws.waiting() and len(later) == NUM_PAIRS_PER_BATCH
    for row in rows + later:
        texts = text(row, 0), text(row, 1)
        assert row["label"] == (TIE if texts[0] == texts[1] else 1)
        assert texts in asked or texts[0] == texts[1]
        assert (row["id"][0] == row["id"][1]) == (texts[0] == texts[1])


def test_an_earlier_run_s_labels_are_not_asked_for_again():
    draws, captions = draws_of(), captions_of(TEXTS[:3])
    draws.ingest([labelled((a, b), 0) for a in TEXTS[:3] for b in TEXTS[:3]])
    assert len(draws.draw(captions)) == NUM_PAIRS_PER_BATCH and not draws.waiting()


def test_a_label_that_does_not_come_lets_the_pair_go():
    draws, captions = draws_of(), captions_of(TEXTS[:2])
    draws.draw(captions)
    assert len(draws.waiting()) == 1
    assert draws.ingest([Annotation(item, None) for item in draws.waiting()]) == [] and not draws.waiting()
    assert all(row["label"] == TIE for row in draws.draw(captions)) and not draws.waiting()
    draws.ingest([labelled(item, 0) for item in [(TEXTS[0], TEXTS[1]), (TEXTS[1], TEXTS[0])]])  # after all
    assert len(draws.draw(captions)) == NUM_PAIRS_PER_BATCH


def test_no_more_are_drawn_while_too_many_wait():
    draws = draws_of(max_waiting=15)
    waiting = [len(draws.draw(captions_of(TEXTS, seed)) + draws.waiting()) for seed in range(5)]
    assert waiting[0] <= 10 < 15 <= waiting[1] and waiting[1] == waiting[2] == waiting[4]


def test_pending_pairs_are_asked_about_whole_after_a_resume():
    long = [b"%d: " % i + b"x" * 400 for i in range(4)]  # a row holds their beginnings
    draws, resumed = draws_of(), draws_of()
    draws.draw(captions_of(long))
    resumed.restore(draws.save())
    assert resumed.waiting() == draws.waiting()
    assert {len(caption) for item in resumed.waiting() for caption in item} == {403}
    assert len(answer(resumed, 1)) == len(answer(draws, 1)) > 0
    saved = draws_of()
    saved.draw(captions_of(TEXTS[:4]))
    older = {name: x for name, x in saved.save().items() if name != "items_waiting"}
    resumed = draws_of()
    resumed.restore(older)
    assert resumed.waiting() == saved.waiting()


def test_pending_pairs_are_bounded_though_the_same_few_repeat():
    draws, captions = draws_of(max_waiting=15), captions_of(TEXTS[:2])
    for _ in range(100):
        draws.draw(captions)
    assert len(draws.waiting()) == 1 and 150 <= len(draws.save()["waiting_message"]) < 160


def test_only_every_subsample_th_observation_is_drawn_and_its_parts_come_along():
    draws = draws_of(subsample=10, names=("place",))
    captions = captions_of(TEXTS)
    for _ in range(30):
        draws.draw(captions)
    rows = answer(draws, 0)
    places = np.concatenate([row["place"][:, 0] for row in rows])
    assert set(places % 10) == {0} and len(set(places)) > 50
    for row in rows:
        for side in (0, 1):
            assert text(row, side) == captions.captions[captions.index.ravel()[row["place"][side, 0]]]


def frequency(distinct) -> float:
    """Returns the frequency of draws of the message that nine of ten observations hold."""
    draws = draws_of(distinct=distinct)
    captions = captions_of([TEXTS[0]] * 27 + TEXTS[1:4])
    captions = captions._replace(captions=[TEXTS[0], *TEXTS[1:4]], index=np.maximum(captions.index - 26, 0))
    rows = [row for _ in range(50) for row in draws.draw(captions)] + answer(draws, 0)
    seen = collections.Counter(text(row, side) for row in rows for side in (0, 1))
    return seen[TEXTS[0]] / seen.total()


def test_frequent_messages_weigh_more_unless_each_is_kept_once():
    assert frequency(distinct=False) > 0.8
    assert 0.15 < frequency(distinct=True) < 0.35


def test_saved_and_restored_it_draws_the_same_and_still_waits():
    captions = captions_of(TEXTS[:6])
    draws = draws_of(names=("place",))
    rows = draws.draw(captions) + draws.ingest([labelled(draws.waiting()[0], 1)])
    held = {f"rows_{name}": np.stack([row[name] for row in rows]) for name in rows[0]}
    other = draws_of(names=("place",))
    other.restore({**{name: np.array(x) for name, x in draws.save().items()}, **held})
    assert other.waiting() == draws.waiting()
    label = [labelled((text(rows[-1], 0), text(rows[-1], 1)), 1)]
    other.ingest(label)  # the label store hands it out again
    for seed in range(3):
        captions = captions_of(TEXTS[:6], seed)
        assert len(draws.draw(captions)) == len(other.draw(captions))
        assert draws.waiting() == other.waiting()
    for mine, theirs in zip(answer(draws, 0), answer(other, 0), strict=True):
        assert all(np.array_equal(mine[name], theirs[name]) for name in mine if name != "id")
        assert (mine["id"][0] == mine["id"][1]) == (theirs["id"][0] == theirs["id"][1])


def test_numbers_of_messages_stay_when_early_rows_have_given_way():
    draws = draws_of()
    rows = draws.ingest([]) + draws.draw(captions_of(TEXTS[:6]))
    rows += answer(draws, 1)
    other = draws_of()
    held = {f"rows_{name}": np.stack([row[name] for row in rows[-2:]]) for name in rows[0]}  # two of many are left
    other.restore({**draws.save(), **held})
    for seed in range(5):
        rows = rows[-2:] + other.draw(captions_of(TEXTS[:12], seed)) + answer(other, 0)
        numbers = {}
        for row in rows:
            for side in (0, 1):
                assert numbers.setdefault(int(row["id"][side]), text(row, side)) == text(row, side)
