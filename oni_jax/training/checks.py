"""Checks of a run's settings before anything is started. Without JAX, which takes seconds to import."""

from oni_jax.settings.config import Config, check_config
from oni_jax.settings.fields import UserError


def check_run(config: Config) -> None:
    """Checks settings one by one, together, and against the environment, the reward and their files.

    Raises:
        UserError: the first mistake.
    """
    # Imported here, since child processes of a run import the launcher without needing these.
    from oni_jax.annotation.address import request_headers, server_urls
    from oni_jax.annotation.judge_answers import load_rules
    from oni_jax.annotation.prompts import load_chat_template
    from oni_jax.answers.answerer import find_answerer
    from oni_jax.rewards.registry import check_rewards
    from oni_jax.runs.plan import Plan, with_chosen_encoder, with_chosen_env
    from oni_jax.settings.annotation import JUDGE

    check_config(config)
    plan = Plan(with_chosen_encoder(with_chosen_env(config)))
    check_rewards(plan.config)
    spec = plan.policy_spec
    for annotation, kind in plan.questions:
        if not spec.has_captions:
            raise UserError(f"--root_env {config.env.root_env}: has no captions for an LLM to judge; use another")
        request_headers(annotation)
        if annotation.llm_server_addr:
            server_urls(annotation.llm_server_addr)
        elif find_answerer(annotation, plan.language, kind).asks == JUDGE:
            load_rules(plan.language)
        plan.prompt(annotation, kind)
        load_chat_template(annotation.llm_chat_template)
