"""Every registered reward keeps the interface's promises. A new type is tested by being registered."""

import dataclasses
import functools
import itertools
import json
import re
import zlib

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from oni_jax.envs.registry import env_spec
from oni_jax.host.npz import from_npz, to_npz
from oni_jax.learner.peers.contributions import Contribution, merge_contributions, pack_contribution
from oni_jax.learner.shards import pack_shards, shard_score
from oni_jax.networks import ragged
from oni_jax.networks.glyphs import make_ranking_network
from oni_jax.parallel import Replicas, all_gather, local_shard, mean
from oni_jax.rewards.base import Reward, Scorer
from oni_jax.rewards.combine import Paid, Potential
from oni_jax.rewards.oni.reward_model import QUANTILES, RewardModel, save_reward_model
from oni_jax.rewards.registry import REWARD_TYPES, check_rewards, make_rewards, observations_read, trained_model
from oni_jax.rewards.terms import RewardSum, Term
from oni_jax.runs.plan import with_chosen_env
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError, with_values
from oni_jax.settings.learning import NetworkConfig, TorchbeastConfig
from oni_jax.settings.rewards import RewardConfig
from oni_jax.settings.worlds import EnvConfig, GoalConfig
from oni_jax.types import EVERYTHING, Annotation, CaptionBatch, PyTree, RewardOutput, StepCaptions, Trajectory
from oni_jax.worlds.base import Collected
from tests.rewards.bk.preference_models import HORIZON, write_untrained
from tests.rewards.word_vector_files import write_text
from tests.support import potential_plugin, signals_plugin  # they register their types
from tests.support.documented import undocumented
from tests.support.labelled import labelled
from tests.support.processes import equal_on_devices

T, B = 4, 6
NETHACK, CATCH = "NetHackScore-v1", "Catch-v0"
QUICK = ("online_cls", "rnd")  # rewards whose tests in NetHack are among the quick ones
KEY = np.zeros(2, np.uint32)
assert potential_plugin.make in [kind.make for kind in REWARD_TYPES.values()]
NETWORK = NetworkConfig(
    encoder_custom="mlp_encoder",
    hidden_size=16,
    policy_initialization="xavier_uniform",
    torchbeast=TorchbeastConfig(msg_model="lt_cnn_small", hidden_dim=16),
)
ELLM_MODEL, OR_MODEL = "ellm by a model", "online_cls or a model"
VARIANTS = {ELLM_MODEL: "ellm", OR_MODEL: "online_cls"}  # variants of the types, by settings
GOALS = {"goals": ["action 1", "newt"], "keys": ["Agent history", "action 2"], "indices": [[0], [0, 1]]}
POTENTIAL = """
def compute_reward(obs, past_obs, past_actions):
    value = 0.1 * sum(past_actions)
    for i, seen in enumerate([obs] + past_obs):
        for name in seen:
            x = seen[name]
            while isinstance(x, list):
                x = x[-1]
            value += x * (i + 1)
    return value, {"last": value}
"""
OBSERVED: dict[RewardSum, dict] = {}  # observations of the environment that a reward was made for
MESSAGES = [
    b"",
    b"You kill the newt!",
    b"It is dark.",
    b"caf\xe9 \xff\x80 \x01",
    bytes(range(1, 256)) + b"!",  # all 256 bytes used
    b"x" * 300,  # more than a message can hold
    b"The exit is 3 steps away.",
]


@pytest.fixture(scope="module", autouse=True)
def little_to_compile():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ragged, "LENGTHS", ())
        yield


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A reward directory, with a reward model and a potential, and a file of word vectors."""
    folder = tmp_path_factory.mktemp("reward")
    network = make_ranking_network(NETWORK)
    params = jax.jit(network.init)(jax.random.key(3), {"message": jnp.zeros((1, 256), jnp.uint8)})
    save_reward_model(str(folder), 1, RewardModel(NETWORK, params, 0.01, 0.2, {q: q - 0.5 for q in QUANTILES}), {})
    (folder / "potential.py").write_text(POTENTIAL)
    (folder / "goals.json").write_text(json.dumps(GOALS))
    table = {"you": [1.0, 0.0, 0.1], "kill": [0.0, 1.0, 0.2], "dark": [-1.0, 0.3, 0.0], "monsters": [0.1, 0.9, 0.0]}
    return {"reward_dir": str(folder), "word_vectors": write_text(folder / "words.vec", table)}


def config_of(name, files, root_env=NETHACK, **settings) -> Config:
    given = {
        "motif": {"reward_dir": files["reward_dir"]},
        "bk-code": {"reward_dir": files["reward_dir"], "potential_horizon": 2, "potential_warmup_steps": 0},
        "bk-goal": {
            "reward_dir": files["reward_dir"],
            "potential_embeddings": "grams",
            "potential_goal_threshold": 0.1,
            "potential_warmup_steps": 0,
        },
        "cosine-bow": {"word_vectors": files["word_vectors"]},
    }
    if name == "bk-pref":
        folder = write_untrained(files["reward_dir"], root_env)
        given[name] = {"reward_dir": folder, "potential_horizon": HORIZON, "potential_warmup_steps": 0}
    sizes = dict(
        reward_model_batch_size=8,
        reward_model_gradient_steps_per_update=1,
        reward_dataset_size=64,
        online_dataset_subsample=1,
    )
    coeff = 0.0 if name == "none" else 0.1
    kind = VARIANTS.get(name, name)
    is_ellm = kind == "ellm"
    settings |= {"unanswered": "model"} if name == OR_MODEL else {}
    reward = with_values(
        RewardConfig(),
        dict(llm_reward_type=kind, llm_reward_coeff=coeff, **{**sizes, **given.get(name, {}), **settings}),
    )  # type: ignore
    goal = "" if is_ellm else "The player wants to kill monsters."
    annotation = AnnotationConfig(llm_batch_size=20, goal=goal)
    suggester = "model" if name == ELLM_MODEL else {CATCH: "llm", NETHACK: "oracle"}[root_env]
    goals = GoalConfig(suggester=suggester) if is_ellm else GoalConfig()
    root_env = signals_plugin.NAME if is_ellm else root_env  # it has goals
    config = Config(EnvConfig(root_env=root_env, goals=goals), network=NETWORK, reward=reward, annotation=annotation)
    return with_chosen_env(config)


def make(name, files, root_env=NETHACK, **settings) -> RewardSum:
    config = config_of(name, files, root_env, **settings)
    check_rewards(config)
    spec = env_spec(config.env, (EVERYTHING, *observations_read(config)))
    rewards = make_rewards(config, spec)
    rng = np.random.default_rng(2)
    OBSERVED[rewards] = {
        name: rng.integers(0, x.num_ids or min(spec.num_actions, 9), (T + 1, B, *x.shape)).astype(x.dtype)
        for name, x in spec.observations.items()
        if name in {*rewards.final_observations, *rewards.other_observations}
    }
    return rewards


def batch_of(messages=MESSAGES, seed=0) -> CaptionBatch:
    index = np.random.default_rng(seed).integers(0, len(messages), (T, B)).astype(np.int32)
    index.flat[: len(messages)] = np.arange(len(messages))
    return CaptionBatch(messages, index)


def captions_of(messages=MESSAGES, seed=0) -> StepCaptions:
    return StepCaptions(batch_of(messages, seed), batch_of(messages, seed + 100))


def trajectory_of(**known) -> Trajectory:
    """Steps without an end, at which captions are there for the first time."""
    zeros = np.zeros((T, B), np.float32)
    counts = {"before_counts": zeros + 1, "caused_counts": zeros + 1}
    others = {
        "is_first": np.zeros((T + 1, B)),
        "actions": zeros.astype(np.int32),
        "initial_core_state": np.zeros(B),
        "final_observations": {},
    }
    fields = {**dict.fromkeys(Trajectory._fields, zeros), **counts, **others, "observations": {}, **known}
    return Trajectory(**fields)  # type: ignore


def observed(rewards: RewardSum, captions: StepCaptions) -> StepCaptions:
    """The captions with the observations that the rewards read."""
    seen = OBSERVED.get(rewards, {})
    before = {**captions.before.observations} | {name: x[:-1] for name, x in seen.items()}
    caused = {**captions.caused.observations} | {name: x[1:] for name, x in seen.items()}
    return StepCaptions(captions.before._replace(observations=before), captions.caused._replace(observations=caused))


def steps_read_by(rewards: RewardSum) -> Trajectory:
    """The same, with the observations that the rewards read, and NaN for counts that they don't."""
    observed = OBSERVED.get(rewards, {})
    finals = {name: np.zeros_like(x[1:]) for name, x in observed.items()}
    steps = trajectory_of(observations=observed, final_observations=finals)
    unread = np.full((T, B), np.nan, np.float32)
    return steps if rewards.reads_counts else steps._replace(before_counts=unread, caused_counts=unread)


@functools.cache
def jitted(rewards):
    return jax.jit(rewards.score)


def score(rewards, state, captions):
    return jitted(rewards)(state, steps_read_by(rewards), rewards.prepare(observed(rewards, captions)), KEY)


def answer_to(item, is_list: bool) -> Annotation:
    """A label or a list of goals, or none; of an item always the same."""
    number = zlib.crc32(b"/".join(item)) % 3
    if is_list and number < 2:
        return Annotation(item, b"- say %d" % number)
    return labelled(item, number, 0.5) if number < 2 else Annotation(item, None)


def teach(rewards, state, rounds=3) -> tuple[PyTree, list[Annotation]]:
    """Answers what it asks, and makes what gradient steps are due. Returns the state, and what a store would hold."""
    answers = []
    for i in range(rounds):
        rewards.acting(state)
        rewards.observe(observed(rewards, captions_of(seed=i)))
        found = [answer_to(query.item, "ellm" in rewards.labels) for query in rewards.queries()]
        rewards.ingest(found)
        answers += [annotation for annotation in found if annotation.answer is not None]
        state = rewards.train_step(state)
    return state, answers


def cases() -> list:
    """Every reward in Catch, and some in NetHack, where the rest are slow ones."""
    in_catch = [pytest.param((name, CATCH), id=f"{name} {CATCH}") for name in (*REWARD_TYPES, *VARIANTS)]
    return in_catch + [
        pytest.param((name, NETHACK), id=f"{name} {NETHACK}", marks=() if name in QUICK else pytest.mark.slow)
        for name in REWARD_TYPES
    ]


@pytest.fixture(scope="module", params=cases())
def taught(request, files):
    """((name, environment, answers so far), rewards, state) after some learning."""
    name, root_env = request.param
    rewards = make(name, files, root_env)
    state, answers = teach(rewards, rewards.init(jax.random.key(0)))
    return (name, root_env, answers), rewards, state


def test_scores_are_finite_float32_of_the_batch_s_shape(taught):
    _, rewards, state = taught
    output = score(rewards, state, captions_of())
    chex.assert_shape(output.rewards, (1, T, B))
    chex.assert_type(output.rewards, jnp.float32)
    chex.assert_tree_all_finite(output)
    chex.assert_trees_all_equal_shapes_and_dtypes(output.state, state)


def test_its_metrics_are_documented(taught):
    _, rewards, state = taught
    assert undocumented(f"reward/{name}" for name in rewards.metrics(state)) == []


def test_a_message_is_scored_alike_wherever_it_stands(taught):
    _, rewards, state = taught
    captions = captions_of()
    order = np.random.default_rng(1).permutation(len(MESSAGES))
    moved = [CaptionBatch([MESSAGES[i] for i in order], np.argsort(order).astype(np.int32)[x.index]) for x in captions]
    outputs = [score(rewards, state, batch).rewards for batch in (captions, StepCaptions(*moved))]
    np.testing.assert_allclose(*outputs, rtol=1e-5, atol=1e-6)


def test_scoring_is_pure(taught):
    """It gives the same again, leaves its arguments alone, and is the same program when it is traced again."""
    _, rewards, state = taught
    before = jax.tree.map(np.array, state)
    arguments = state, steps_read_by(rewards), rewards.prepare(observed(rewards, captions_of())), KEY

    def run(*given):
        leaves = jax.tree.leaves(given)
        output = rewards.score(*given)
        assert all(x is y for x, y in zip(leaves, jax.tree.leaves(given), strict=True))
        return output

    first = jax.make_jaxpr(run)(*arguments)
    chex.assert_trees_all_equal(*(jitted(rewards)(*arguments) for _ in range(2)))
    chex.assert_trees_all_equal(state, before)
    again = jax.make_jaxpr(functools.partial(run))(*arguments)  # another function: else the first trace is kept
    texts = [re.sub(" at 0x[0-9a-f]+", "", str(program)) for program in (first, again)]
    assert texts[0] == texts[1] and not again.effects
    chex.assert_trees_all_equal(first.consts, again.consts)


def test_scoring_state_outlasts_the_gradient_steps_of_another_reward(taught):
    _, rewards, state = taught
    if rewards.steps_due():
        pytest.skip("it has other steps")
    scored = score(rewards, state, captions_of()).state
    chex.assert_trees_all_equal(rewards.merge(scored, rewards.train_step(state)), scored)


def test_so_does_a_potential_s_scale(files):
    rewards = make("bk-code", files, CATCH, potential_warmup_steps=10**6)
    state = rewards.init(jax.random.key(0))
    scored = score(rewards, state, captions_of()).state
    assert rewards.merge(scored, rewards.train_step(state)).scale.num_steps == T * B


def test_asking_changes_nothing(taught):
    _, rewards, _ = taught
    before, asked = rewards.save(), rewards.queries()
    assert rewards.queries() == asked
    chex.assert_trees_all_equal(rewards.save(), before)


def test_goals_that_were_suggested_are_given_once(files):
    rewards = make("ellm", files, CATCH)
    _, answers = teach(rewards, rewards.init(KEY))
    given = rewards.suggested()
    assert answers and {*given} == {item for (item,), *_ in answers} and rewards.suggested() == {}
    assert all(np.flatnonzero(given[item]).tolist() == [int((answer or b"")[-1:])] for (item,), answer, _ in answers)


def test_features_always_have_the_same_shapes(taught):
    _, rewards, _ = taught
    shapes = [
        jax.tree.map(lambda x: (x.shape, x.dtype), rewards.prepare(observed(rewards, captions_of(messages))))
        for messages in (MESSAGES, MESSAGES[:1], MESSAGES * 3)
    ]
    assert shapes[0] == shapes[1] == shapes[2]


def test_saved_and_restored_it_scores_the_same_bits(taught, files):
    (name, root_env, answers), rewards, state = taught
    saved = {key: np.array(x) for key, x in rewards.save().items()}
    assert all(x.size for x in saved.values())
    other = make(name, files, root_env)
    like = other.init(jax.random.key(1))
    chex.assert_trees_all_equal_shapes_and_dtypes(like, state)
    other.restore(saved)
    chex.assert_trees_all_equal({key: np.array(x) for key, x in other.save().items()}, saved)
    other.ingest(answers)  # the label store has them
    captions = captions_of()
    chex.assert_trees_all_equal(score(other, state, captions).rewards, score(rewards, state, captions).rewards)
    assert other.steps_due() == rewards.steps_due()
    # And it goes on as the other would have.
    after = [jax.tree.map(np.array, teach(r, jax.tree.map(jnp.copy, state), 1)[0]) for r in (other, rewards)]
    chex.assert_trees_all_equal(*after)


def test_equal_keys_give_equal_states(files, taught):
    (name, root_env, _), rewards, _ = taught
    states = [rewards.init(jax.random.key(5)), make(name, files, root_env).init(jax.random.key(5))]
    chex.assert_trees_all_equal(*states)


@pytest.mark.parametrize("end", ["before", "caused"])
def test_the_caption_that_is_named_pays_divided_by_its_count(files, end):
    at = {"before": "obs", "caused": "next_obs"}[end]
    rewards = make("online_cls", files, intrinsic_reward_at=at, beta_count_exponent=2.0)
    rewards.ingest([labelled((MESSAGES[1],), 1)])
    captions, counts = captions_of(), np.random.default_rng(0).integers(1, 5, (T, B)).astype(np.float32)
    trajectory = trajectory_of(**{f"{end}_counts": counts})
    (given,) = rewards.score((), trajectory, rewards.prepare(captions), KEY).rewards
    np.testing.assert_allclose(given, (getattr(captions, end).index == 1) / counts**2, rtol=1e-6)


class Seen(Scorer):
    """Values a caption by an observation beside it."""

    other_observations = ("x",)

    def raw_values(self, state, seen, features):
        return seen.observations["x"]


def test_the_last_caption_of_an_episode_stands_beside_its_final_observation():
    """Not beside the next episode's first."""
    x = np.arange((T + 1) * B, dtype=np.float32).reshape(T + 1, B)
    ends = np.random.default_rng(0).integers(0, 3, (T, B))  # 1 terminated, 2 truncated
    ended = {"terminations": np.float32(ends == 1), "truncations": np.float32(ends == 2)}
    trajectory = trajectory_of(observations={"x": x}, final_observations={"x": -x[:-1]}, **ended)
    for end, expected in {"before": x[:-1], "caused": np.where(ends > 0, -x[:-1], x[1:])}.items():
        paid = Paid(Seen(), end)
        assert tuple(paid.final_observations) == (("x",) if end == "caused" else ())
        given = paid.score((), trajectory, paid.prepare(captions_of()), KEY).rewards
        np.testing.assert_array_equal(given, expected)


class PaidOnce(Paid):
    """As an author writes one: it reads the counts, whatever the exponent."""

    def score(self, state, trajectory, features, key):
        scored = super().score(state, trajectory, features, key)
        return scored._replace(rewards=jnp.where(trajectory.before_counts == 1, scored.rewards, 0.0))


@pytest.mark.parametrize(
    "reward, reads",
    [(Paid(Seen(), "before"), False), (Paid(Seen(), "before", 0.5), True), (PaidOnce(Seen(), "before"), True)],
)
def test_counts_are_there_for_rewards_that_read_them(reward, reads):
    rewards = RewardSum([Term("a", reward, 1.0), Term("b", Potential(Seen(), 0.9), 1.0)])
    spec = rewards.read_from(env_spec(EnvConfig(root_env=CATCH)))
    assert spec.reads_counts == reads and spec.captions_read == ("before", "caused")


@pytest.mark.parametrize(
    "name, setting",
    [
        ("bk-code", {"potential_embeddings": "grams"}),
        ("bk-code", {"potential_goal_threshold": 0.9}),
        ("bk-pref", {"potential_workers": 3}),
        ("bk-pref", {"potential_embeddings": "grams"}),
        ("bk-goal", {"potential_workers": 3}),
        ("rnd", {"potential_horizon": 3}),
    ],
)
def test_settings_of_another_type_are_refused(name, setting, files):
    (flag,) = setting
    check_rewards(config_of(name, files, CATCH))
    with pytest.raises(UserError, match=f"--{flag} .*: has no meaning without --llm_reward_type [a-z -]*bk"):
        check_rewards(config_of(name, files, CATCH, **setting))


@pytest.mark.parametrize(
    "name, setting",
    [
        ("rnd", {"beta_count_exponent": 1.0}),
        ("none", {"intrinsic_reward_at": "next_obs"}),
        ("bk-code", {"beta_count_exponent": 0.0}),
    ],
)
def test_settings_of_rewards_of_captions_are_refused(name, setting, files):
    (flag,) = setting
    with pytest.raises(UserError, match=f"--{flag} .*: has no meaning without --llm_reward_type online_cls .*count$"):
        check_rewards(config_of(name, files, CATCH, **setting))


def test_rewards_without_training_need_no_devices_for_a_batch(files, monkeypatch):
    monkeypatch.setattr("jax.devices", lambda *_: [jax.local_devices()[0]] * 3)
    config = config_of("online_motif", files)
    with pytest.raises(UserError, match="--reward_model_batch_size 8: must be a multiple of the 3 devices"):
        make_rewards(config, env_spec(config.env))
    make_rewards(config, env_spec(config.env), frozen=True)


def test_a_model_that_is_trained_anew_is_read_anew(tmp_path):
    """In the same process, as in a notebook."""
    network = make_ranking_network(NETWORK)
    params = jax.jit(network.init)(jax.random.key(3), {"message": jnp.zeros((1, 256), jnp.uint8)})
    for epoch, model_mean in enumerate((0.25, 0.5), 1):
        trained = RewardModel(NETWORK, params, model_mean, 0.2, dict.fromkeys(QUANTILES, 0.0))
        save_reward_model(str(tmp_path), epoch, trained, {})
        assert trained_model(str(tmp_path)).mean == model_mean and trained_model(str(tmp_path)) is trained_model(
            str(tmp_path)
        )


def test_several_rewards_add_up_and_keep_apart(files):
    """Each has separate labels, by a separate goal; equal questions are asked once."""
    one = config_of("online_cls", files)
    gold = dataclasses.replace(one.annotation, goal="The player wants gold.")
    twice, cosine = (one.reward, gold), config_of("cosine-bow", files)
    config = dataclasses.replace(one, others=(twice, (one.reward, one.annotation), (cosine.reward, cosine.annotation)))
    check_rewards(config)
    rewards = make_rewards(config, env_spec(config.env))
    assert rewards.labels == ("online_cls", "online_cls_2", "online_cls_3", "cosine-bow")
    rewards.observe(captions_of())
    assert {query.question for query in rewards.queries()} == {0, 1}
    assert {query.item for query in rewards.queries(1)} == {rewards.queries()[-1].item}
    assert rewards.queries(0) == []
    rewards.ingest([labelled((MESSAGES[1],), 1), labelled((MESSAGES[2],), 1)._replace(question=1)])
    captions = captions_of()
    output = rewards.score(rewards.init(KEY), trajectory_of(), rewards.prepare(captions), KEY)
    index = captions.before.index
    np.testing.assert_array_equal(output.rewards[:3], [index == 1, index == 2, index == 1])
    (alone,) = score(make("cosine-bow", files), (), captions).rewards
    np.testing.assert_array_equal(output.rewards[3], alone)


def test_several_rewards_save_and_train_separately(files):
    config = config_of("online_cls_reward_model", files)
    config = dataclasses.replace(config, others=((config_of("online_motif", files).reward, config.annotation),))
    rewards, other = (make_rewards(config, env_spec(config.env)) for _ in range(2))
    rewards.observe(captions_of())
    asked = rewards.queries()
    assert {(query.question, len(query.item)) for query in asked} == {(0, 1), (1, 2)}
    rewards.ingest([labelled(item, i % 2)._replace(question=q) for i, (item, q) in enumerate(asked)])
    state = jax.tree.map(np.array, rewards.init(KEY))
    trained = rewards.train_step(rewards.init(KEY))
    moved = [
        any(np.any(a != b) for a, b in zip(jax.tree.leaves(x), jax.tree.leaves(y))) for x, y in zip(state, trained)
    ]
    assert moved == [True, True]
    other.restore(rewards.save())
    chex.assert_trees_all_equal(dict(other.save()), dict(rewards.save()))
    assert undocumented(f"reward/{name}" for name in rewards.metrics(trained)) == []


class Fetched(dict):
    """Observations on a device; each that the host reads is noted."""

    def __init__(self, rewards: RewardSum, end: slice):
        super().__init__({name: x[end] for name, x in OBSERVED[rewards].items()})
        self.read: set[str] = set()

    def __getitem__(self, name):
        self.read.add(name)
        return super().__getitem__(name)


LOOKED_UP, LEARNT_FROM = ("bk-code", "bk-goal"), ("online_motif",)


@pytest.mark.parametrize("name", REWARD_TYPES)
def test_the_host_reads_no_observation_but_what_it_needs(name, files):
    """An accelerator would have to wait for each; and processes tell each other what is learnt from alone."""
    rewards = make(name, files, CATCH)
    ends = [Fetched(rewards, slice(0, -1)), Fetched(rewards, slice(1, None))]
    captions = StepCaptions(*(batch._replace(observations=end) for batch, end in zip(captions_of(), ends)))
    told = rewards.read(captions, observed=True)
    assert name in LEARNT_FROM or not told.before.observations
    rewards.observe(told)
    assert name in LEARNT_FROM or not ends[0].read | ends[1].read
    rewards.prepare(rewards.read(captions))
    assert name in LOOKED_UP + LEARNT_FROM or not ends[0].read | ends[1].read


def test_processes_tell_each_other_what_is_learnt_from(files):
    """Observations beside a pair's captions, in a run of two processes."""
    config = config_of("online_motif", files)
    config = dataclasses.replace(config, network=with_values(NETWORK, {"use_blstats": True}))
    rewards = make_rewards(config, env_spec(config.env, observations_read(config)))
    assert rewards.other_observations == ["vector_obs"]
    shown = np.random.default_rng(0).normal(size=(T, 2 * B, 27)).astype(np.float32)
    parts = []
    for share in np.split(shown, 2, axis=1):
        before = batch_of()._replace(observations={"vector_obs": share, "chars": None})
        told = rewards.read(
            StepCaptions(before, batch_of()._replace(observations={"vector_obs": share})), observed=True
        )
        parts.append(from_npz(to_npz(pack_contribution(Contribution(told)))))
    captions = merge_contributions(parts).captions
    np.testing.assert_array_equal(captions.before.observations["vector_obs"], shown)
    rewards.observe(captions)
    rewards.ingest([labelled(query.item, 1)._replace(question=query.question) for query in rewards.queries()])
    rows = rewards.save()["rows_vector_obs"].reshape(-1, 27)
    assert len(rows) and all((row == shown.reshape(-1, 27)).all(-1).any() for row in rows)


class OwnReward(Reward):
    """As an author writes one: all of `score`, a state that counts, look-ups of captions and of observations."""

    other_observations = ("x",)
    captions_read = ("before",)

    def init(self, key):
        return {"total": jnp.float32(0), "weights": jnp.arange(3.0)}

    def prepare(self, captions):
        worth = np.zeros(8, np.float32)
        worth[: len(captions.before.captions)] = [len(message) for message in captions.before.captions]
        return {"worth": worth, "index": captions.before.index, "seen": captions.before.observations["x"].sum(axis=-1)}

    def score(self, state, trajectory, features, key):
        # A draw for each step of the whole batch, whatever devices it is on.
        noise = local_shard(jax.random.normal(key, (T, B)), axis=1)
        rewards = features["worth"][features["index"]] + features["seen"] * state["weights"].sum() + noise
        total = state["total"] + mean(jnp.mean(rewards)) + jnp.mean(all_gather(rewards, axis=1))
        return RewardOutput(rewards, {**state, "total": total})


def scored(rewards: RewardSum, replicas: Replicas) -> tuple[RewardOutput, bool]:
    """Returns a batch's scores by rewards with random parameters, and whether unchanged fields were passed through."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(T, B, 3)).astype(np.float32)
    captions = StepCaptions(*(batch._replace(observations={"x": x}) for batch in captions_of()))
    rewards.observe(captions)
    rewards.ingest([labelled(query.item, i % 2, 0.5) for i, query in enumerate(rewards.queries())])

    def noise(leaf):  # not negative, as variances are
        return np.abs(rng.normal(scale=0.03, size=leaf.shape)).astype(np.float32)

    state = jax.tree.map(
        lambda leaf: leaf + noise(leaf) if leaf.dtype == np.float32 else leaf,
        jax.device_get(rewards.init(jax.random.key(0))),
    )
    batch = pack_shards(Collected((), observed(rewards, captions)), (), rewards, replicas)
    passed = []

    def score(state, steps, features):
        output = shard_score(rewards, replicas)(state, steps, features, KEY)
        passed.append([a is b for a, b in zip(jax.tree.leaves(output.state), jax.tree.leaves(state))])
        return output

    return jax.device_get(jax.jit(score)(replicas.put(state), steps_read_by(rewards), batch.features)), passed[0]  # type: ignore


def two_devices(folder: str, *root_envs: str) -> None:
    ragged.LENGTHS = ()
    given = {"reward_dir": folder, "word_vectors": f"{folder}/words.vec"}

    def of(name, root_env):
        if name == "author":
            return RewardSum([Term("author", OwnReward(), 1.0)])
        soft = {"llm_reward_value": "probability"} if name.startswith("online_cls") else {}
        return make(name, given, root_env, **soft)

    for root_env, name in itertools.product(root_envs, (*REWARD_TYPES, "author")):
        one, two = (scored(of(name, root_env), Replicas(jax.devices()[:count])) for count in (1, 2))
        assert one[1] == two[1], name
        assert one[0].rewards.shape == two[0].rewards.shape == (1, T, B), name
        assert name == "none" or np.any(one[0].rewards), name
        for a, b in zip(jax.tree.leaves(one[0]), jax.tree.leaves(two[0]), strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6, err_msg=name)
    print("equal")


@pytest.mark.parametrize("root_env", [pytest.param(NETHACK, marks=pytest.mark.slow), CATCH])
def test_two_devices_score_as_one_does(files, root_env):
    code = f"from tests.rewards.test_conformance import two_devices; two_devices({files['reward_dir']!r}, {root_env!r})"
    equal_on_devices(2, "-c", code)
