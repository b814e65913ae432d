"""Events as captions: on the host and on devices, and where they are the default."""

import dataclasses
from contextlib import closing

import numpy as np
import pytest

from oni_jax.envs.base import Environment, make_step_output
from oni_jax.envs.device.vector_env import DeviceVectorEnv
from oni_jax.envs.event_captions import with_event_captions
from oni_jax.envs.registry import caption_reader, env_spec, find_environment, make_vector_env
from oni_jax.runs.plan import with_chosen_env
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError
from oni_jax.settings.rewards import RewardConfig
from oni_jax.settings.worlds import CrafterConfig, EnvConfig
from tests.envs.device.signals_env import SignalsEnv

CRAFTER = EnvConfig(root_env="Crafter-v1", crafter=CrafterConfig(map_stock=8, maps="stock"))


def play(config: EnvConfig, num_steps: int = 30) -> list[tuple[list[bytes], list[bytes], list[bytes], list[bool]]]:
    """Returns captions, final captions, events, and whether an episode ended, after a reset and after each step."""
    with closing(make_vector_env(config, 2, 3, 0)) as env:
        out = make_step_output(env.spec, 2)
        env.reset(out)
        rows = []
        for t in range(num_steps + 1):
            if t:
                env.step(np.full(2, t % env.spec.num_actions, np.int32), out)
            ended = (out.records["terminated"] | out.records["truncated"]).tolist()
            rows.append((*(list(texts) for texts in out.texts), ended))
        return rows  # type: ignore


@pytest.mark.slow
@pytest.mark.parametrize("config", [CRAFTER, dataclasses.replace(CRAFTER, max_episode_steps=7)])
def test_captions_are_the_events(config):
    states, events = play(config), play(dataclasses.replace(config, caption="event"))
    assert events[0][0] == [b"", b""]
    assert states[0][0] != [b"", b""]
    for (_, _, happened, ended), (captions, finals, same, _) in zip(states[1:], events[1:], strict=True):
        assert happened == same
        for i in range(2):
            assert captions[i] == (b"" if ended[i] else happened[i])
            assert not ended[i] or finals[i] == happened[i]
    assert b"do nothing" in {event for row in events for event in row[2]}


def test_device_environments_have_them_too():
    config = dataclasses.replace(CRAFTER, caption="event")
    make = find_environment(config).device
    assert make is not None
    env = make(config)
    assert env.spec.caption_size == env_spec(config).caption_size == 1
    assert caption_reader(config)(np.array([1], np.uint8)) == env.event(np.array([1], np.uint8)) == b"do nothing"


def test_a_device_environment_without_captions():
    """Played by actors, as in an evaluation."""

    def mute(spec):
        return spec._replace(has_captions=False)

    class Mute(SignalsEnv):
        spec = mute(SignalsEnv.spec)

    def make(config, spec, num_envs, seed, first_index):
        return DeviceVectorEnv(Mute(), num_envs, seed, first_index, config.max_episode_steps, spec)

    environment = Environment(("Mute-v0",), lambda config: Mute.spec, make, device=lambda config: Mute())
    heard = with_event_captions(environment)
    config = EnvConfig(root_env="Mute-v0", caption="event")
    with closing(heard.make(config, heard.make_spec(config), 2, 3, 0)) as env:
        out = make_step_output(env.spec, 2)
        env.reset(out)
        env.step(np.ones(2, np.int32), out)
        assert env.spec.has_captions and all(caption.startswith(b"You say ") for caption in out.texts.captions)


def test_an_environment_without_events_says_so():
    with pytest.raises(UserError, match="NetHackScore-v1 has no events; use --caption state"):
        env_spec(EnvConfig(caption="event"))


@pytest.mark.parametrize(
    "env, kinds, chosen",
    [
        (CRAFTER, "online_cls", "event"),
        (CRAFTER, "online_cls,online_motif", "event"),
        (CRAFTER, "count", "event"),
        (CRAFTER, "none", "state"),
        (CRAFTER, "online_cls,bk-code", "state"),
        (dataclasses.replace(CRAFTER, caption="state"), "online_cls", "state"),
        (EnvConfig(), "online_cls", "state"),
    ],
)
def test_rewards_of_captions_read_crafter_s_events(env, kinds, chosen):
    config = Config(env, reward=RewardConfig(llm_reward_type=kinds))
    assert with_chosen_env(config).env.caption == chosen
