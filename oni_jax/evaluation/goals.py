"""Goals that a run's LLM suggests, outside training: recorded answers, those of its label store, its model of them."""

from oni_jax.answers.answerer import recorded_answers
from oni_jax.envs.goals import BY_LLM, LLM, MODEL, Suggested
from oni_jax.runs.run import Run
from oni_jax.settings.fields import UserError
from oni_jax.settings.worlds import EnvConfig
from oni_jax.types import Annotation


def load_goals(run: Run, env: EnvConfig, env_steps: int | None) -> Suggested | None:
    """Loads what a run's LLM suggests, as of a checkpoint; None where an environment's goals are not an LLM's.

    All answers count from the first step on: in training, those to states that are new come a moment later.

    Raises:
        UserError: the run asked no LLM for goals, or has no model of it, or can't be read.
    """
    settings = env.goals
    if settings.suggester not in BY_LLM:
        return None
    known = run.rewards(env_steps)
    for term, state in zip(known.rewards.terms, known.rewards.states(known.state), strict=True):
        answers = [answer for answer in known.annotations if answer.question == term.question]
        if term.question >= 0:
            annotation, kind = run.plan.questions[term.question]
            recorded = recorded_answers(annotation, run.plan.language, kind)
            answers += [Annotation(item, answer, term.question) for item, answer in recorded.items()]
        found = term.reward.learning.suggests(state, answers)
        if found is None:
            continue
        if settings.suggester == LLM and found.table:
            return Suggested(found.table)
        if settings.suggester == MODEL and found.model:
            return found if settings.answers == "first" else Suggested(model=found.model)
    needed = "asked no LLM for goals" if settings.suggester == LLM else "has learnt no model of an LLM's goals"
    raise UserError(f"--goal_suggester {settings.suggester}: {run.name} {needed}; name another, such as oracle")
