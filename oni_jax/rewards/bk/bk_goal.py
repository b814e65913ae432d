"""BK-Goal: a potential by goals that an LLM named for segments; see `potentials.goals`.

phi of a state is how near the step that led to it came to a goal, by the cosine of their embeddings; 0 unless above a
threshold. The goals are those of the segments that are nearest to the three steps before that one.
"""

import functools
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from oni_jax.envs.registry import caption_reader
from oni_jax.host.reporting import report
from oni_jax.rewards.base import Reward
from oni_jax.rewards.bk.goals import HORIZON, NAMES, GoalLibrary, GoalVectors, read_library, texts_of_window
from oni_jax.rewards.bk.potential import shape
from oni_jax.rewards.bk.window_potential import MAX_KNOWN, WindowPotential
from oni_jax.rewards.bk.windows import Windows, names_read, row_digests
from oni_jax.rewards.embeddings.embeddings import Embed, Memo
from oni_jax.rewards.embeddings.settings import make_embedder
from oni_jax.rewards.registry import RewardContext
from oni_jax.settings.config import Config
from oni_jax.settings.fields import caption_text
from oni_jax.types import Array

NUM_PROBED = 1000  # windows after which it is said that none has come near to a goal
CACHE_SIZE = 1 << 16  # texts
ROUNDING = 1e-5  # largest error of a cosine


class GoalPotential(WindowPotential):
    """Values windows of HORIZON steps and a state by the goals that their last step comes near to.

    A window that begins with its episode has fewer steps: what was before is not compared. An episode's first state
    has the potential 0.

    Args:
        library: the goals.
        embed: texts -> embeddings.
        read_caption: see `registry.caption_reader`.
        words: the actions' names.
        threshold: below or at which a cosine counts as 0.
        warmup_steps: see `PotentialScorer`.
        of_server: see `WindowPotential`.
    """

    def __init__(
        self,
        library: GoalLibrary,
        embed: Embed,
        read_caption: Callable[[np.ndarray], bytes],
        words: Sequence[str],
        threshold: float,
        warmup_steps: int,
        of_server: bool = False,
    ):
        super().__init__(NAMES, HORIZON, warmup_steps, of_server)
        self._library, self._embed, self._words, self._threshold = library, Memo(embed), words, threshold
        self._num_near, self._largest, self._has_warned = 0, -1.0, False
        self._largest_of: dict[bytes, float] = {}  # digest of a step, two captions and an action -> cosine to any goal

        @functools.lru_cache(CACHE_SIZE)
        def read(key: bytes) -> str:
            return caption_text(read_caption(np.frombuffer(key, np.uint8)))

        self._read = read

    @functools.cached_property
    def _vectors(self) -> GoalVectors:
        keys, goals = ([text.strip() for text in texts] for texts in (self._library.keys, self._library.goals))
        return GoalVectors(self._embed(keys), self._embed(goals), self._library.indices)

    def value(self, windows: Windows, rows: Sequence[int]) -> Sequence[float]:
        (captions,) = windows.steps.values()
        steps = row_digests([captions[rows, -2:].reshape(len(rows), -1), windows.actions[rows, -1:]])
        self._compare(dict(zip(steps, rows)), captions, windows.actions)
        # Few steps come near to any goal: for those alone the segments nearest to the steps before are sought.
        near = [i for i, step in zip(rows, steps) if self._largest_of[step] > self._threshold - ROUNDING]
        texts = {i: self._texts(captions[i], windows.actions[i]) for i in near}
        pairs = [*dict.fromkeys(texts.values())]
        values = dict(zip(pairs, self._values(pairs)))
        phi = [values[texts[i]] if i in texts else 0.0 for i in rows]
        self._num_near += int(np.count_nonzero(phi))
        self._warn(len(rows))
        return phi

    def _texts(self, captions: np.ndarray, actions: np.ndarray) -> tuple[str, str]:
        """Returns the steps before the last one, and the last one; empty at an episode's first state."""
        read = [self._read(key.tobytes()) for key in captions]
        return texts_of_window(read, actions.tolist(), self._words) or ("", "")

    def _compare(self, steps: Mapping[bytes, int], captions: np.ndarray, actions: np.ndarray) -> None:
        """Compares new steps, the last ones of these rows, with all goals."""
        if len(self._largest_of) > MAX_KNOWN:
            self._largest_of = {step: self._largest_of[step] for step in steps if step in self._largest_of}
        new = {step: i for step, i in steps.items() if step not in self._largest_of}
        last = [self._texts(captions[i, -2:], actions[i, -1:])[1] for i in new.values()]
        found = dict.fromkeys(new, -1.0)
        taken = {step: text for step, text in zip(new, last) if text}
        if taken:
            cosines = np.max(self._embed([*taken.values()]) @ self._vectors.goals.T, axis=1)
            self._largest = max(self._largest, float(np.max(cosines)))
            found.update(zip(taken, cosines.tolist()))
        self._largest_of.update(found)

    def _values(self, pairs: Sequence[tuple[str, str]]) -> Sequence[float]:
        """Returns the potentials of (steps before the last one, last step)."""
        if not pairs:
            return []
        queries, transitions = (self._embed(texts) for texts in zip(*pairs))
        found = self._vectors.similarities(queries, transitions)
        return [similarity if similarity > self._threshold else 0.0 for similarity in found]

    def _warn(self, num_new: int) -> None:
        if not (self._has_warned or self._num_near) and self._num_calls + num_new >= NUM_PROBED:
            self._has_warned = True
            report(
                f"warning: bk-goal: in {NUM_PROBED} windows no step came near to a goal: its cosine was "
                f"{self._largest:.3f} at most, and --potential_goal_threshold is {self._threshold:g}"
            )

    def metrics(self) -> Mapping[str, Array]:
        return {**super().metrics(), "potential_goal_fraction": self._num_near / max(1, self._num_calls)}


def observations(config: Config) -> Collection[str]:
    return names_read(NAMES, HORIZON)


def make(context: RewardContext) -> Reward:
    config, reward = context.config, context.config.reward
    language = context.environment.language
    scorer = GoalPotential(
        read_library(reward.reward_dir),
        make_embedder(config),
        caption_reader(config.env),
        language.actions if language else (),
        reward.bk_goal.threshold,
        reward.potential.warmup_steps,
        of_server=reward.embeddings.kind == "server" and not context.frozen,
    )
    return shape(context, scorer)
