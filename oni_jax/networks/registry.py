"""Encoders by name. A new one is a file and a line of ENCODERS; a plugin's calls `register_encoder`.

An encoder's module is imported when the encoder is made: importing JAX takes seconds.
"""

import importlib
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

from oni_jax.settings.fields import UserError
from oni_jax.settings.learning import NetworkConfig
from oni_jax.types import CAPTION, EVERYTHING, GOAL_FEATURES, OPEN_GOALS, EnvSpec

if TYPE_CHECKING:
    from flax import linen as nn


AROUND_HERO = ("chars", "colors", "vector_obs", "message")  # NetHack's


class EncoderType(NamedTuple):
    """Properties of an encoder that are known before it is built."""

    observations: Callable[[NetworkConfig], Collection[str]]  # names of those that it reads
    # Makes {name: [N, ...]} -> [N, D] of an environment's observations. UserError: settings that don't fit.
    make: Callable[[NetworkConfig, EnvSpec], "nn.Module"]
    about: str = ""  # a line for --help encoder_custom


def torchbeast_observations(network: NetworkConfig) -> Collection[str]:
    """Names of the observations that the enabled parts of a TorchbeastEncoder read."""
    needed = {
        "vector_obs": network.use_blstats,
        "glyphs": network.use_crop or network.use_glyphs,
        "hero_xy": network.use_crop,
        "message": network.encoder_msg_model != "none",
    }
    return tuple(name for name, wanted in needed.items() if wanted)


def _made_by(module: str, name: str) -> "Callable[[NetworkConfig, EnvSpec], nn.Module]":
    """Returns a function of a module of this folder, imported at its call."""
    return lambda network, spec: getattr(importlib.import_module(f"oni_jax.networks.{module}"), name)(network, spec)


ENCODERS = {
    "nle_rgbcrop_encoder": EncoderType(
        lambda network: AROUND_HERO,
        _made_by("encoders", "make_rgbcrop_encoder"),
        about="ONI's: NetHack's characters around the hero as an image, statistics, message",
    ),
    "nle_torchbeast_encoder": EncoderType(
        torchbeast_observations,
        _made_by("glyphs", "make_glyph_encoder"),
        about="Motif's reward model's: message, and with --use_glyphs, --use_crop, --use_blstats the map",
    ),
    "nle_embedded_encoder": EncoderType(
        lambda network: AROUND_HERO,
        _made_by("embedded_crop", "make_embedded_encoder"),
        about="for CPUs: what nle_rgbcrop_encoder reads, characters and colours as embeddings",
    ),
    "generic_encoder": EncoderType(
        lambda network: (EVERYTHING,),
        _made_by("generic", "make_generic_encoder"),
        about="any environment: images, ids, texts and vectors, each by its shape",
    ),
    "bk_encoder": EncoderType(
        lambda network: ("image",),
        _made_by("bk", "make_bk_encoder"),
        about="BK's: BabyAI-Text as its published networks see it",
    ),
    "mlp_encoder": EncoderType(
        lambda network: (EVERYTHING,),
        _made_by("generic", "make_mlp_encoder"),
        about="a dense layer over all observations, for small environments",
    ),
}


def register_encoder(name: str, encoder: EncoderType) -> None:
    """Registers an encoder as --encoder_custom NAME. Raises UserError when the name is taken."""
    if name in ENCODERS:
        raise UserError(f"the encoder {name} is registered already: choose another name")
    ENCODERS[name] = encoder


def find_encoder(network: NetworkConfig) -> EncoderType:
    """Returns the encoder that `encoder_custom` names. Raises UserError for an unknown one."""
    if network.encoder_custom not in ENCODERS:
        raise UserError(f"--encoder_custom {network.encoder_custom}: unknown; use one of {', '.join(ENCODERS)}")
    return ENCODERS[network.encoder_custom]


def policy_observations(network: NetworkConfig) -> Collection[str]:
    """Names of the observations that the policy reads.

    Raises:
        UserError: an unknown encoder, or one that can't read goals or captions.
    """
    names = find_encoder(network).observations(network)
    added = {"goal_conditioned": OPEN_GOALS, "language_state": CAPTION}
    asked = {flag: name for flag, name in added.items() if getattr(network, flag)}
    if network.goal_conditioned and network.goal_input:  # which the policy adds to what any encoder returns
        names, asked = [*names, GOAL_FEATURES], {flag: x for flag, x in asked.items() if x != OPEN_GOALS}
    if asked and EVERYTHING not in names:
        raise UserError(f"--{min(asked)}: --encoder_custom {network.encoder_custom} can't read it; use generic_encoder")
    return [*names, *asked.values()]
