"""ELLM (Du et al. 2023, arXiv 2302.06692): pays what reaches a goal suggested for the state; see `envs.goals`.

Where an LLM suggests goals, it is asked about each caption, in the background, the most frequent ones first. Until its
answer is there, nothing is suggested for that state. What it answers is matched with the environment's goals.
"""

import heapq
import queue
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import jax.numpy as jnp
import numpy as np

from oni_jax.annotation.prompts import Prompt
from oni_jax.annotation.queries.suggestions import parsed
from oni_jax.envs.device.goals import HostTable
from oni_jax.envs.goals import Suggested
from oni_jax.host.reporting import report
from oni_jax.rewards.base import Reward, newest
from oni_jax.rewards.combine import observations_after
from oni_jax.rewards.embeddings.embeddings import Embed, Memo
from oni_jax.settings.fields import UserError
from oni_jax.settings.worlds import GoalConfig
from oni_jax.types import (
    GOAL_REWARD,
    Annotation,
    Array,
    CaptionBatch,
    Item,
    PyTree,
    RewardOutput,
    StepCaptions,
    Trajectory,
)

MAX_ASKED = 512  # queries without an answer yet: those asked later are chosen by what has been seen until then
MATCHED_AT_ONCE, RETRY_SECS = 256, 30.0
MAX_KNOWN = 200_000  # captions; beyond, they are forgotten, and known again when they are seen


Answers = Sequence[tuple[bytes, bytes]]  # items and their stored answers
Matches = Sequence[tuple[bytes, np.ndarray]]  # items and what goals are worth, see `Matcher.worths`


class GoalReward(Reward):
    """Rewards goals as the environment pays for them."""

    final_observations, reads_counts, reads_answers = (GOAL_REWARD,), False, False

    def score(self, state: PyTree, trajectory: Trajectory, features: Mapping[str, Array], key: Array) -> RewardOutput:
        return RewardOutput(observations_after(trajectory, GOAL_REWARD).astype(jnp.float32), state)


class Matcher:
    """Finds which of an environment's goals an LLM's words suggest, and how much each is worth.

    Args:
        goals: the environment's, G.
        settings: settings of the goals.
        embed: texts -> embeddings; None: only equal words suggest a goal.
    """

    def __init__(self, goals: Sequence[str], settings: GoalConfig, embed: Embed | None = None):
        self._goals, self._settings, self._embed = goals, settings, embed
        self.num_suggested, self.num_unmatched = 0, 0  # words, so far

    def words(self, answer: bytes) -> Sequence[str]:
        """Returns the goals in a stored answer; none: the chosen parser can't read it."""
        return parsed(answer, self._settings.parser == "strict")

    def worths(self, answer: bytes) -> np.ndarray:
        """Returns what reaching each goal is worth, and how many words name none, [G + 1] float32, by a kept answer.

        Worth: the largest cosine with what was suggested, where it is above the threshold; 1 for equal words; else 0.
        """
        return self.of_words(self.words(answer))

    def match(self, answers: Answers) -> Matches:
        """Returns the worths of items' answers."""
        return [(item, self.worths(answer)) for item, answer in answers]

    def of_words(self, words: Sequence[str]) -> np.ndarray:
        """Returns the same by what was suggested."""
        if not words:
            return np.zeros(len(self._goals) + 1, np.float32)
        cosines = np.array([[goal == word for word in words] for goal in self._goals], np.float32)
        if self._embed:
            cosines = self._embed(self._goals) @ self._embed(words).T
        matches = cosines > self._settings.threshold if self._embed else cosines > 0
        num_unmatched = len(words) - int(matches.any(0).sum())
        self.num_suggested += len(words)
        self.num_unmatched += num_unmatched
        return np.append(np.where(matches, cosines, 0.0).max(1), num_unmatched).astype(np.float32)


class InBackground:
    """Matches answers in a thread, and again later where its server gives no embeddings; nobody waits.

    Args:
        match: raises UserError when it can't.
    """

    def __init__(self, match: Callable[[Answers], Matches]):
        self._match = match
        self._waiting: list[tuple[bytes, bytes]] = []
        self._matched: queue.SimpleQueue[Matches] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def __call__(self, answers: Answers) -> Matches:
        """Takes in answers; returns what has been matched since the last call."""
        self._waiting += answers
        if self._waiting and not (self._thread and self._thread.is_alive()):
            now, self._waiting = self._waiting, []
            self._thread = threading.Thread(target=self._run, args=(now,), daemon=True)
            self._thread.start()
        found: list[tuple[bytes, np.ndarray]] = []
        while not self._matched.empty():
            found += self._matched.get()
        return found

    def _run(self, answers: Answers) -> None:
        for i in range(0, len(answers), MATCHED_AT_ONCE):
            while True:
                try:
                    self._matched.put(self._match(answers[i : i + MATCHED_AT_ONCE]))
                    break
                except UserError as error:
                    report(f"warning: {error}; suggested goals wait, and are tried again")
                    time.sleep(RETRY_SECS)


class SuggestedGoalReward(GoalReward):
    """Rewards goals that an LLM suggests.

    Args:
        prompt: prompt of the queries.
        matcher: matcher of their answers with the environment's goals.
        is_slow: the matcher asks a server: it works in a separate thread.
        memo: memo of the matcher's embeddings, to be written with each checkpoint; None: there is none.
        max_asked: queries without an answer yet; no more than the backlog takes, which would drop them.
    """

    captions_read = ("before",)

    def __init__(
        self,
        prompt: Prompt,
        matcher: Matcher,
        is_slow: bool = False,
        memo: Memo | None = None,
        max_asked: int = MAX_ASKED,
    ):
        self._prompt, self._matcher, self._memo, self._max_asked = prompt, matcher, memo, max_asked
        self._match = InBackground(matcher.match) if is_slow else matcher.match
        self._items: dict[bytes, bytes] = {}  # caption -> item of its query
        self._captions: dict[bytes, list[bytes]] = {}  # the inverse
        self._worths: dict[bytes, np.ndarray] = {}  # caption asked about -> worths; the label store holds the same
        self._waiting: dict[bytes, float] = {}  # pending caption -> number of its steps, or their weight
        self._asked: dict[bytes, None] = {}  # captions without an answer yet; the last is asked first
        self._put_aside: set[bytes] = set()  # asked, and got no answer that can be read
        self._again: dict[bytes, None] = {}  # the newest of these, which may have been dropped: too many waited
        self._new: dict[bytes, np.ndarray] = {}
        self._given: set[bytes] = set()  # captions whose goals the environments have
        self._coverage = 0.0

    def observe(self, captions: StepCaptions) -> None:
        before, unanswered = captions.before, Counter[bytes]()
        if len(self._items) > MAX_KNOWN:
            for known in (self._items, self._captions, self._waiting, self._given):
                known.clear()
        counts = np.bincount(before.index.ravel(), minlength=len(before.captions)).tolist()
        num_covered = 0
        for caption, count in zip(before.captions, counts):
            item = self._item(caption)
            if (worths := self._worths.get(item)) is not None:
                self._new[caption] = worths
                num_covered += count * (caption in self._given)
            elif item not in self._asked and item not in self._put_aside:
                unanswered[item] += count
        for item, weight in self._weights(unanswered, before).items():
            self._waiting[item] = self._waiting.get(item, 0.0) + weight
        self._coverage = num_covered / max(1, before.index.size)
        room = max(0, self._max_asked - len(self._asked))
        chosen = heapq.nlargest(room, self._waiting, key=self._waiting.__getitem__)
        for item in reversed(chosen):
            del self._waiting[item]
            self._asked[item] = None

    def _weights(self, unanswered: Mapping[bytes, int], captions: CaptionBatch) -> Mapping[bytes, float]:
        """Returns how much it is worth to ask about items that were met so often; those that are not, it leaves out."""
        return unanswered

    def _item(self, caption: bytes) -> bytes:
        item = self._items.get(caption)
        if item is None:
            item = self._items[caption] = self._prompt.rewrite(caption)
            self._captions.setdefault(item, []).append(caption)
        return item

    def asked_as(self, caption: bytes) -> bytes:
        return self._items.get(caption) or self._prompt.rewrite(caption)

    def queries(self, limit: int = sys.maxsize) -> Sequence[Item]:
        return newest(((item,) for item in (*reversed(self._asked), *reversed(self._again))), limit)

    def ingest(self, annotations: Sequence[Annotation]) -> None:
        answered = []
        for (item,), answer, _ in annotations:
            self._asked.pop(item, None)
            was_asked_again = item in self._again
            self._again.pop(item, None)
            if answer is not None and self._matcher.words(answer):
                answered.append((item, answer))
                continue
            self._put_aside.add(item)
            if answer is None and not was_asked_again:  # else it was kept by a run that reads it
                self._again[item] = None
                if len(self._again) > self._max_asked:
                    del self._again[next(iter(self._again))]
        self._add(self._match(answered))

    def _add(self, matches: Matches) -> None:
        for item, worths in matches:
            self._worths[item] = worths
            self._waiting.pop(item, None)
            self._asked.pop(item, None)  # seen, and asked again, while it was matched
            self._new.update(dict.fromkeys(self._captions.get(item, ()), worths))

    def suggests(self, state: PyTree, answers: Sequence[Annotation]) -> Suggested | None:
        known = {item: answer for (item,), answer, _ in answers if answer is not None and self._matcher.words(answer)}
        return Suggested(HostTable(dict(self._matcher.match([*known.items()])), self._prompt.rewrite))

    def suggested(self) -> Mapping[bytes, np.ndarray]:
        self._add(self._match(()))
        new, self._new = self._new, {}
        self._given.update(new)
        return new

    def save(self) -> Mapping[str, np.ndarray]:
        if self._memo:
            self._memo.write()
        return {}

    def metrics(self) -> Mapping[str, Array]:
        total = max(1, self._matcher.num_suggested)
        return {
            "goal_coverage": np.float32(self._coverage),
            "goals_unmatched_fraction": np.float32(self._matcher.num_unmatched / total),
            "captions_answered": np.float32(len(self._worths)),
        }
