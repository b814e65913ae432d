"""Encoders by name. A new one is a file and a line of ENCODERS; a plugin's calls `register_encoder`.

An encoder's module is imported when the encoder is made: importing JAX takes seconds.
"""

import dataclasses
import importlib
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from oni_jax.settings.fields import UserError
from oni_jax.settings.learning import NetworkConfig
from oni_jax.settings.plugins import bring
from oni_jax.types import CAPTION, EVERYTHING, GOAL_FEATURES, OPEN_GOALS, EnvSpec

if TYPE_CHECKING:
    from flax import linen as nn


AUTO, ONI, GENERIC = "auto", "nle_rgbcrop_encoder", "generic_encoder"
SPACE = "space"  # --image_scale
AROUND_HERO = ("chars", "colors", "vector_obs", "message")  # NetHack's


class EncoderType(NamedTuple):
    """Properties of an encoder that are known before it is built."""

    observations: Callable[[NetworkConfig], Collection[str]]  # names of those that it reads
    # Makes {name: [N, ...]} -> [N, D] of an environment's observations. UserError: settings that don't fit.
    make: Callable[[NetworkConfig, EnvSpec], "nn.Module"]
    about: str = ""  # a line for --help encoder_custom
    settings: tuple[type, ...] = ()  # a plugin's sections of NetworkConfig, which become flags


def torchbeast_observations(network: NetworkConfig) -> Collection[str]:
    """Names of the observations that the enabled parts of a TorchbeastEncoder read."""
    parts = network.torchbeast
    needed = {
        "vector_obs": parts.use_blstats,
        "glyphs": parts.use_crop or parts.use_glyphs,
        "hero_xy": parts.use_crop,
        "message": parts.msg_model != "none",
    }
    return tuple(name for name, wanted in needed.items() if wanted)


def _made_by(module: str, name: str) -> "Callable[[NetworkConfig, EnvSpec], nn.Module]":
    """Returns a function of a module of this folder, imported at its call."""
    return lambda network, spec: getattr(importlib.import_module(f"oni_jax.networks.{module}"), name)(network, spec)


ENCODERS = {
    ONI: EncoderType(
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
    GENERIC: EncoderType(
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
    bring(NetworkConfig(), encoder.settings)
    ENCODERS[name] = encoder


def find_encoder(network: NetworkConfig, spec: EnvSpec | None = None) -> EncoderType:
    """Returns the encoder that `encoder_custom` names; of `auto`, the one that fits `spec`.

    Raises:
        UserError: an unknown one.
    """
    if network.encoder_custom == AUTO and spec is not None:
        return ENCODERS[fitting_encoder(network, spec)]
    if network.encoder_custom not in ENCODERS:
        raise UserError(
            f"--encoder_custom {network.encoder_custom}: unknown; use auto, or one of {', '.join(ENCODERS)}"
        )
    return ENCODERS[network.encoder_custom]


def fitting_encoder(network: NetworkConfig, spec: EnvSpec, named: str = "") -> str:
    """Returns the encoder that fits an environment, by name: `named`, ONI's where it shows NetHack, or the generic one.

    The generic one, too, where the policy reads more than the environment's observations, and the other can't.

    Args:
        network: of the policy.
        spec: of the environment, with all its observations.
        named: in the environment's registration; "": none.

    Raises:
        UserError: `named` is unknown.
    """
    name = named or (ONI if _shows_nethack(spec) else GENERIC)
    reads = find_encoder(dataclasses.replace(network, encoder_custom=name)).observations(network)
    return name if EVERYTHING in reads or not _added_observations(network) else GENERIC


def _shows_nethack(spec: EnvSpec) -> bool:
    """Returns whether the observations are those around NetHack's hero, by names and shapes."""
    shapes = [spec.observations[name].shape for name in AROUND_HERO if name in spec.observations]
    return [len(shape) for shape in shapes] == [2, 2, 1, 1] and shapes[0] == shapes[1]


def _added_observations(network: NetworkConfig) -> Mapping[str, str]:
    """Returns the observations that the policy reads beside the environment's, by the flag that asks for them."""
    added = {"goal_conditioned": OPEN_GOALS, "language_state": CAPTION}
    asked = {flag: name for flag, name in added.items() if getattr(network, flag)}
    return {flag: name for flag, name in asked.items() if name != OPEN_GOALS or not _sees_episode_goal(network)}


def _sees_episode_goal(network: NetworkConfig) -> bool:
    """Returns whether the policy sees its episode's goal, which it adds to what any encoder returns."""
    return network.goal_conditioned and bool(network.goal_input)


def policy_observations(network: NetworkConfig) -> Collection[str]:
    """Names of the observations that the policy reads.

    Raises:
        UserError: an unknown encoder, or one that can't read goals or captions.
    """
    names = find_encoder(network).observations(network)
    asked = _added_observations(network)
    if asked and EVERYTHING not in names:
        raise UserError(f"--{min(asked)}: --encoder_custom {network.encoder_custom} can't read it; use {GENERIC}")
    return [*names, *([GOAL_FEATURES] if _sees_episode_goal(network) else []), *asked.values()]
