"""Every registered environment and encoder keeps its interface's promises, on one device and on two simulated ones.

A new one is tested by being registered. `tests.support.corridor_plugin` stands for those from outside.
"""

from collections.abc import Iterator
from contextlib import closing

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.envs.base import VectorEnv, make_step_output
from oni_jax.envs.device.base import observe_all
from oni_jax.envs.device.episodes import begin_episode, environment_key
from oni_jax.envs.history import CAPTION
from oni_jax.envs.registry import ENVIRONMENTS, base_spec, env_spec, make_vector_env
from oni_jax.learner.compilations import CompilationCounter
from oni_jax.learner.shards import shard_policy
from oni_jax.networks.policy import ActorCritic, init_params, make_policy
from oni_jax.networks.registry import ENCODERS, policy_observations
from oni_jax.parallel import Replicas
from oni_jax.settings.fields import UserError
from oni_jax.settings.learning import NetworkConfig, TorchbeastConfig
from oni_jax.settings.worlds import CrafterConfig, EnvConfig
from oni_jax.types import EVERYTHING, EnvSpec
from tests.envs.outputs import are_equal
from tests.support import corridor_plugin, memory_env  # they register their environments
from tests.support.processes import equal_on_devices

ENVS = [next(iter(environment.names)) for environment in ENVIRONMENTS]
assert corridor_plugin.ENVIRONMENT in ENVIRONMENTS and memory_env.SPEC in [
    env_spec(EnvConfig(root_env=name)) for name in ENVS
]
MAX_STEPS = 12
FEW_MAPS = CrafterConfig(map_stock=16)
NUM_ENVS, NUM_STEPS = 3, 40
T, B = 3, 4


def network_of(encoder: str) -> NetworkConfig:
    return NetworkConfig(
        encoder_custom=encoder,
        hidden_size=16,
        torchbeast=TorchbeastConfig(
            msg_model="lt_cnn_small", embedding_dim=8, hidden_dim=16, use_blstats=True, use_crop=True, use_glyphs=True
        ),
    )


def fitting() -> Iterator[tuple[str, str]]:
    """(environment, encoder) of all that go together."""
    for name in ENVS:
        for encoder in ENCODERS:
            try:
                env_spec(EnvConfig(root_env=name), policy_observations(network_of(encoder)))
            except UserError:
                continue
            yield name, encoder


PAIRS = list(fitting())
DEAR = ("bk_encoder", "nle_torchbeast_encoder")  # slow to compile; tests/golden has them, too
OWN_ENVIRONMENTS = {  # environments of encoders that don't take whatever there is
    "nle_rgbcrop_encoder": ["NetHackScore-v1"],
    "nle_torchbeast_encoder": ["NetHackScore-v1"],
    "nle_embedded_encoder": ["NetHackScore-v1"],
    "bk_encoder": ["BabyAI-Text-GoToLocal-Pretraining-S20"],
    "corridor_encoder": ["Corridor-v0"],
}


def make(name: str, num_envs: int = NUM_ENVS, first_index: int = 0, seed: int = 7) -> VectorEnv:
    return make_vector_env(
        EnvConfig(root_env=name, max_episode_steps=MAX_STEPS, crafter=FEW_MAPS), num_envs, seed, first_index
    )


def play(env: VectorEnv, num_actions: int, num_steps: int = NUM_STEPS, columns: slice = slice(None)) -> list:
    """[(records, finals, stats, texts)] of a reset and of steps; the actions depend on `columns` alone."""
    actions = np.random.default_rng(3).integers(num_actions, size=(num_steps, NUM_ENVS)).astype(np.int32)[:, columns]
    out = make_step_output(env.spec, env.num_envs)
    env.reset(out)
    seen = []
    for action in [None, *actions]:
        if action is not None:
            env.step(action, out)
        texts = tuple(list(x) for x in out.texts)
        seen.append((out.records.copy(), out.finals.copy(), out.episode_stats.copy(), texts))
    return seen


@pytest.fixture(scope="module", params=ENVS)
def played(request):
    with closing(make(request.param)) as env:
        return request.param, env.spec, play(env, env.spec.num_actions)


def test_an_environment_says_when_episodes_begin_and_end(played):
    _, spec, seen = played
    first = seen[0][0]
    assert (
        first["is_first"].all() and not (first["terminated"] | first["truncated"]).any() and not first["reward"].any()
    )
    lengths, returns, num_ended = np.zeros(NUM_ENVS), np.zeros(NUM_ENVS), 0
    for records, finals, stats, _ in seen[1:]:
        ended = records["terminated"] | records["truncated"]
        np.testing.assert_array_equal(records["is_first"], ended)
        assert not (records["terminated"] & records["truncated"]).any()
        lengths, returns = lengths + 1, returns + records["reward"]
        np.testing.assert_array_equal(records["truncated"], (lengths == MAX_STEPS) & ~records["terminated"])
        for name in ("reward", "terminated", "truncated"):
            np.testing.assert_array_equal(finals[name][ended], records[name][ended])
        np.testing.assert_allclose(stats[ended, :2], np.stack([returns, lengths], 1)[ended], rtol=1e-5)
        lengths, returns, num_ended = lengths * ~ended, returns * ~ended, num_ended + ended.sum()
    assert num_ended >= NUM_ENVS and spec.episode_stats[:2] == ("return", "length")


def test_an_environment_says_what_its_spec_promises(played):
    name, spec, seen = played
    assert seen[0][0].dtype.names[: len(spec.observations)] == tuple(spec.observations)
    captions = {text for *_, texts in seen for text in texts[0]}
    assert all(isinstance(text, bytes) for text in captions) and (len(captions) > 1) == spec.has_captions
    assert any(text for *_, texts in seen for text in texts[2]) == spec.has_events
    for records, *_ in seen:
        for key, array in spec.observations.items():
            assert records[key].shape[1:] == array.shape and records[key].dtype == array.dtype
            assert np.isfinite(records[key]).all()
            assert not array.num_ids or (0 <= records[key]).all() and (records[key] < array.num_ids).all()


def test_equal_seeds_give_equal_episodes_however_many_share_a_process(played):
    name, spec, seen = played
    for i in range(2):
        with closing(make(name, 1, first_index=i)) as env:
            alone = play(env, spec.num_actions, columns=slice(i, i + 1))
        for (records, _, _, texts), (lone_records, _, _, lone_texts) in zip(seen, alone, strict=True):
            assert are_equal(records[i : i + 1], lone_records) and texts[0][i] == lone_texts[0][0]
    with closing(make(name, seed=8)) as env:
        others = play(env, spec.num_actions)
    assert not all(are_equal(a[0], b[0]) for a, b in zip(seen, others))


@pytest.mark.parametrize(
    "environment",
    [environment for environment in ENVIRONMENTS if environment.display],
    ids=lambda environment: min(environment.names),
)
def test_playable_environments_are_shown_while_they_train(environment):
    name = next(iter(environment.names))
    config = EnvConfig(root_env=name, max_episode_steps=MAX_STEPS, crafter=CrafterConfig(maps="exact"))
    with closing(environment.display.watch(config, base_spec(config, (EVERYTHING,)), 7, 0, 0, "")) as watched:
        watched.reset(make_step_output(watched.spec, 1))
        expected = watched.terminal()
        with closing(CompilationCounter()) as compilations:  # a person would wait at the first key
            for _ in range(2):
                watched.step(np.zeros(1, np.int32), make_step_output(watched.spec, 1))
                watched.terminal()
            assert compilations.count == 0
    if environment.device:
        env = environment.device(config)
        shown = env.draw(jax.device_get(env.scene(begin_episode(env, environment_key(7, 0), 0).state)))
    else:
        with closing(make(name)) as env:
            env.reset(make_step_output(env.spec, NUM_ENVS))
            shown = env.terminal()
    assert shown is not None
    np.testing.assert_array_equal(shown.chars, expected.chars)
    np.testing.assert_array_equal(shown.colors.astype(np.uint8), expected.colors.astype(np.uint8))


@pytest.mark.parametrize("environment", [environment for environment in ENVIRONMENTS if environment.device])
def test_captions_keys_have_the_size_of_the_spec(environment):
    env = environment.device(EnvConfig(root_env=next(iter(environment.names)), crafter=FEW_MAPS))
    shown = jax.eval_shape(lambda key: observe_all(env, env.reset(key)), jax.random.key(0))
    assert not env.spec.has_captions or shown[CAPTION].shape == (env.spec.caption_size,)


@pytest.mark.parametrize("name", ENVS)
def test_saved_state_resumes_identically(name):
    with closing(make(name)) as env, closing(make(name, seed=9)) as other:
        play(env, env.spec.num_actions, 5)
        if not (saved := env.save()):
            pytest.skip("its episodes can't be saved")
        other.restore(saved)
        outs = [make_step_output(env.spec, NUM_ENVS) for _ in range(2)]
        for _ in range(2 * MAX_STEPS):
            for one, out in zip((env, other), outs):
                one.step(np.ones(NUM_ENVS, np.int32), out)
            assert are_equal(outs[0].records, outs[1].records) and outs[0].texts == outs[1].texts


def observations_of(name: str, spec: EnvSpec) -> dict[str, np.ndarray]:
    """[T, B, ...], real ones."""
    config = EnvConfig(root_env=name, max_episode_steps=MAX_STEPS, crafter=FEW_MAPS)
    with closing(make_vector_env(config, B, 7, 0, tuple(spec.observations))) as env:
        out = make_step_output(env.spec, B)
        env.reset(out)
        records = [out.records.copy()]
        for i in range(T - 1):
            env.step(np.full(B, i % spec.num_actions, np.int32), out)
            records.append(out.records.copy())
    return {key: np.stack([record[key] for record in records]) for key in spec.observations}


def policy_of(name: str, encoder: str) -> tuple[ActorCritic, EnvSpec]:
    network = network_of(encoder)
    spec = env_spec(EnvConfig(root_env=name), policy_observations(network))
    return make_policy(network, spec), spec


def values_and_gradients(name: str, encoder: str, num_devices: int) -> tuple:
    policy, spec = policy_of(name, encoder)
    params = init_params(policy, spec, jax.random.key(0))
    apply = shard_policy(policy.apply, Replicas(jax.devices()[:num_devices]))
    arguments = observations_of(name, spec), policy.initial_state(B), np.zeros((T, B), bool)

    @jax.jit
    def run(params):
        def loss(params):
            output, state = apply(params, *arguments)
            return jnp.sum(jnp.sin(output.logits)) + jnp.sum(output.values), (output, state)

        return jax.value_and_grad(loss, has_aux=True)(params)

    return jax.device_get(run(params))


def compare(actual: tuple, expected: tuple) -> None:
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-4 * np.abs(b).max() + 1e-6), actual, expected
    )


def test_environments_and_encoders_go_together_as_they_say():
    assert set(PAIRS) == {(name, encoder) for encoder in ENCODERS for name in OWN_ENVIRONMENTS.get(encoder, ENVS)}


def other_values(x: np.ndarray, num_ids: int) -> np.ndarray:
    """Values of an observation that it may have, each another one."""
    return ((x.astype(np.int64) + 1) % num_ids).astype(x.dtype) if num_ids else x + np.ones_like(x)


@pytest.mark.parametrize(
    "encoder", [pytest.param(encoder, marks=pytest.mark.slow if encoder in DEAR else ()) for encoder in ENCODERS]
)
def test_an_encoder_treats_observations_apart_and_learns_from_all_it_reads(encoder):
    name = next(name for name, other in PAIRS if other == encoder)
    policy, spec = policy_of(name, encoder)
    params = init_params(policy, spec, jax.random.key(0))
    observations = {key: x[:1] for key, x in observations_of(name, spec).items()}
    apply = jax.jit(policy.apply)
    whole, _ = apply(params, observations, policy.initial_state(B), np.zeros((1, B), bool))
    assert whole.logits.shape == (1, B, spec.num_actions) and whole.logits.dtype == jnp.float32
    order = np.array([2, 0, 3, 1])
    mixed = {key: x[:, order] for key, x in observations.items()}
    other, _ = apply(params, mixed, policy.initial_state(B), np.zeros((1, B), bool))
    np.testing.assert_allclose(other.logits, whole.logits[:, order], rtol=1e-4, atol=1e-5)
    for key, x in observations.items():
        changed = {**observations, key: other_values(x, spec.observations[key].num_ids)}
        other, _ = apply(params, changed, policy.initial_state(B), np.zeros((1, B), bool))
        assert np.any(other.logits != whole.logits), key
    (_, _), gradients = values_and_gradients(name, encoder, 1)
    leaves = {jax.tree_util.keystr(path): x for path, x in jax.tree_util.tree_leaves_with_path(gradients)}
    assert all(np.isfinite(x).all() for x in leaves.values())
    assert [path for path, x in leaves.items() if not np.any(x)] == []


def covering(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """One pair of every encoder, the last; but of those that take longest to compile, which are in all pairs alone."""
    last = {encoder: (name, encoder) for name, encoder in pairs if not encoder.startswith("nle_")}
    return list(last.values())


def two_devices(pairs: list[tuple[str, str]]) -> None:
    for pair in pairs:
        compare(values_and_gradients(*pair, 2), values_and_gradients(*pair, 1))
    print("equal")


@pytest.mark.parametrize("pairs", ["covering(PAIRS)", pytest.param("PAIRS", marks=pytest.mark.slow)])
def test_two_devices_compute_what_one_does(pairs):
    code = f"from tests.test_conformance import *; two_devices({pairs})"
    equal_on_devices(2, "-c", code, timeout_secs=600)
