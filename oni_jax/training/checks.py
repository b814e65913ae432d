"""Checks of a run's settings before anything is started. Without JAX, which takes seconds to import."""

from oni_jax.settings.config import Config, check_config
from oni_jax.settings.fields import UserError


def check_run(config: Config) -> None:
    """Checks settings by themselves, beside each other, and against the environment, the reward and their files.

    Raises:
        UserError: the first mistake.
    """
    # Imported here, since child processes of a run import the launcher without needing these.
    from oni_jax.annotation.address import request_headers, server_urls
    from oni_jax.annotation.judge_answers import load_rules
    from oni_jax.annotation.prompts import load_chat_template, load_prompt
    from oni_jax.answers.answerer import find_answerer
    from oni_jax.envs.registry import env_spec, find_environment, with_chosen_env
    from oni_jax.networks.registry import policy_observations
    from oni_jax.rewards.registry import check_rewards, questions
    from oni_jax.settings.annotation import JUDGE

    check_config(config)
    config = with_chosen_env(config)
    environment = find_environment(config.env)
    check_rewards(config)
    spec = env_spec(config.env, policy_observations(config.network))
    for annotation, kind in questions(config):
        if not spec.has_captions:
            raise UserError(f"--root_env {config.env.root_env}: has no captions for an LLM to judge; use another")
        request_headers(annotation)
        if annotation.llm_server_addr:
            server_urls(annotation.llm_server_addr)
        elif find_answerer(annotation, environment.language, kind).asks == JUDGE:
            load_rules(environment.language)
        load_prompt(annotation, environment.language, kind)
        load_chat_template(annotation.llm_chat_template)
