"""Goals that a run's LLM suggests, outside training: recorded answers, those of its label store, its model of them."""

import os

from oni_jax.answers.answerer import recorded_answers
from oni_jax.envs.goals import BY_LLM, LLM, MODEL, Suggested
from oni_jax.envs.registry import find_environment
from oni_jax.evaluation.inspection import load_reward
from oni_jax.rewards.registry import questions
from oni_jax.settings.fields import UserError
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import Annotation


def load_goals(folder: str, env: EnvConfig, env_steps: int | None) -> Suggested | None:
    """Loads what a run's LLM suggests, as of a checkpoint; None where an environment's goals are not an LLM's.

    All answers count from the first step on: in training, those to states that are new come a moment later.

    Raises:
        UserError: the run asked no LLM for goals, or has no model of it, or can't be read.
    """
    settings = env.goals
    if settings.goal_suggester not in BY_LLM:
        return None
    run, name = load_reward(folder, env_steps), os.path.basename(folder)
    asked, language = questions(run.config), find_environment(run.config.env).language
    for term, state in zip(run.rewards.terms, run.rewards.states(run.state), strict=True):
        answers = [answer for answer in run.annotations if answer.question == term.question]
        if term.question >= 0:
            recorded = recorded_answers(asked[term.question][0], language, asked[term.question][1])
            answers += [Annotation(item, answer, term.question) for item, answer in recorded.items()]
        found = term.reward.learning.suggests(state, answers)
        if found is None:
            continue
        if settings.goal_suggester == LLM and found.table:
            return Suggested(found.table)
        if settings.goal_suggester == MODEL and found.model:
            return found if settings.goal_answers == "first" else Suggested(model=found.model)
    needed = "asked no LLM for goals" if settings.goal_suggester == LLM else "has learnt no model of an LLM's goals"
    raise UserError(f"--goal_suggester {settings.goal_suggester}: {name} {needed}; name another, such as oracle")
