"""Settings of bk-goal and ellm, checked without JAX, and the embedder that they choose."""

import os
from collections.abc import Callable
from typing import NamedTuple

from oni_jax.envs.goals import MODEL, NO_GOALS
from oni_jax.rewards.bk.goals import HORIZON, read_library
from oni_jax.rewards.embeddings.embeddings import (
    Embed,
    Memo,
    SentenceEncoder,
    ServerEmbedder,
    WordEmbedder,
    embed_grams,
    sentence_folder,
)
from oni_jax.rewards.embeddings.kept_embeddings import KeptMemo
from oni_jax.rewards.oni.word_vectors import check_word_vectors, open_word_vectors
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError, given


class Embeddings(NamedTuple):
    """A value of --potential_embeddings."""

    make: Callable[[Config], Embed]  # UserError: unusable settings or files
    check: Callable[[Config], object] = lambda config: None  # cheap checks; raises UserError
    reads: str = ""  # the setting that it alone reads, beside others that do


def _folder(config: Config) -> str:
    return sentence_folder(config.reward.embeddings.model)


def _server(config: Config) -> Embed:
    return ServerEmbedder(config.annotation, config.reward.embeddings.model)


EMBEDDINGS = {
    "sentences": Embeddings(
        lambda config: SentenceEncoder(_folder(config)), _folder, reads="potential_embedding_model"
    ),
    "server": Embeddings(_server, _server, reads="potential_embedding_model"),
    "words": Embeddings(
        lambda config: WordEmbedder(open_word_vectors(config.reward.word_vectors).vector),
        lambda config: check_word_vectors(config.reward.word_vectors),
        reads="word_vectors",
    ),
    "grams": Embeddings(lambda config: embed_grams),
}


def make_embedder(config: Config) -> Embed:
    """Makes what --potential_embeddings names. Raises UserError."""
    return EMBEDDINGS[config.reward.embeddings.kind].make(config)


def make_memo(config: Config, keeps: bool) -> Memo:
    """Makes the same, where each text is embedded once; with `keeps` those of models beside the label store.

    Raises UserError.
    """
    reward, store = config.reward, config.annotation.label_store
    embed = make_embedder(config)
    if not keeps or EMBEDDINGS[reward.embeddings.kind].reads != "potential_embedding_model":
        return Memo(embed)
    folder = os.path.dirname(store) or "." if store else os.path.join(config.run.train_dir, config.run.experiment)
    model = reward.embeddings.model or config.annotation.llm_model * isinstance(embed, ServerEmbedder)
    return KeptMemo(embed, os.path.abspath(folder), f"{reward.embeddings.kind} {model}")


def check_goals(config: Config) -> None:
    """Checks the settings, and the files that they name. Raises UserError."""
    reward = config.reward
    if not reward.reward_dir:
        raise UserError("--llm_reward_type bk-goal: needs --reward_dir, the goals that launch.write_goals wrote")
    if reward.potential.horizon < HORIZON:
        raise UserError(
            f"--potential_horizon {reward.potential.horizon}: bk-goal reads {HORIZON} steps; give {HORIZON} or more"
        )
    _check_embeddings(config)
    read_library(reward.reward_dir)


def check_suggestions(config: Config) -> None:
    """Checks the settings of ellm, and the files that they name. Raises UserError."""
    goals = config.env.goals
    if goals.suggester == NO_GOALS:
        raise UserError(f"--goal_suggester {NO_GOALS}: --llm_reward_type ellm pays for goals; leave it out")
    if config.reward.reward_dir and goals.suggester != MODEL:
        raise UserError(
            f"--reward_dir {config.reward.reward_dir}: with ellm it holds a goal model; add --goal_suggester {MODEL}"
        )
    for name in (
        ("goal_answers", "goal_table_size", "goal_similarity", "goal_parser") if config.reward.reward_dir else ()
    ):
        if name in (changed := given(goals)):
            raise UserError(
                f"--{name} {changed[name]}: has no meaning with --reward_dir, which asks nothing; leave it out"
            )
    if goals.similarity == "exact":
        for name in ("word_vectors", "potential_embedding_model", "potential_embeddings"):
            if name in (changed := given(config.reward)):
                raise UserError(f"--{name} {changed[name]}: has no meaning with --goal_similarity exact")
    else:
        _check_embeddings(config)


def _check_embeddings(config: Config) -> None:
    reward = config.reward
    chosen = EMBEDDINGS[reward.embeddings.kind]
    for name in ("word_vectors", "potential_embedding_model"):
        if name in (changed := given(reward)) and chosen.reads != name:
            raise UserError(
                f"--{name} {changed[name]}: has no meaning with --potential_embeddings {reward.embeddings.kind}"
            )
    chosen.check(config)
