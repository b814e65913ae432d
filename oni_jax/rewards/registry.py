"""Reward types by name. A new one is a file and a line of REWARD_TYPES; a plugin's calls `register_reward`."""

import sys
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from oni_jax.annotation.prompts import Prompt, goal_text, load_prompt
from oni_jax.annotation.queries.captions import AboutCaption
from oni_jax.annotation.queries.registry import QUERIES, register_query
from oni_jax.annotation.queries.suggestions import StrictSuggestions, Suggestions
from oni_jax.envs.base import Environment
from oni_jax.envs.goals import BY_LLM, MODEL
from oni_jax.envs.registry import find_environment
from oni_jax.host.plugins import load_plugins
from oni_jax.networks.registry import policy_observations, torchbeast_observations
from oni_jax.rewards.bk.code import read_code
from oni_jax.rewards.reward_type import RewardType, in_module, reward_labels, trained_model
from oni_jax.settings.annotation import AnnotationConfig
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError, given, nearest_first, sections
from oni_jax.settings.learning import NetworkConfig
from oni_jax.settings.plugins import bring
from oni_jax.settings.rewards import (
    AptConfig,
    CaptionRewardConfig,
    CodeConfig,
    EmbeddingsConfig,
    GoalPotentialConfig,
    NovelDConfig,
    PotentialConfig,
    RewardConfig,
    RndConfig,
)
from oni_jax.types import EPISODE_GOAL, GOAL_REWARD, EnvSpec

if TYPE_CHECKING:  # they import JAX
    from oni_jax.parallel import Replicas
    from oni_jax.rewards.terms import RewardSum


class RewardContext(NamedTuple):
    """Arguments that a reward is made from."""

    config: Config  # settings of this reward only, where a run has several
    spec: EnvSpec  # spec of the environment that it rewards
    replicas: "Replicas | None" = None  # devices of a reward model's gradient steps; None: all there are
    frozen: bool = False  # keeps running statistics as they are, for inspection

    @property
    def environment(self) -> Environment:
        """The environment that it rewards."""
        return find_environment(self.config.env)

    def prompt(self) -> Prompt:
        """Returns the prompt of the reward's queries. Raises UserError: it can't be read."""
        return load_prompt(self.config.annotation, self.environment.language, _query(self.config))

    def goal(self) -> str:
        """Returns the goal's sentences from the prompt. Raises UserError: the prompt has none."""
        return goal_text(self.config.annotation, self.environment.language)


def _other_observations(network: NetworkConfig) -> Collection[str]:
    """Names of the observations that a ranking model reads in addition to the message, which is the caption."""
    return [name for name in torchbeast_observations(network) if name != "message"]


def _check_code(config: Config) -> None:
    if not config.reward.reward_dir:
        raise UserError("--llm_reward_type bk-code: needs --reward_dir, the code that launch.write_potential wrote")
    read_code(config.reward.reward_dir)


def _needs_folder(name: str, program: str) -> Callable[[Config], None]:
    """Returns a check that the folder is given which a program wrote."""

    def check(config: Config) -> None:
        if not config.reward.reward_dir:
            raise UserError(f"--llm_reward_type {name}: needs --reward_dir, the folder that {program} wrote")

    return check


GOAL_REWARDED = "ellm"
REWARD_TYPES: dict[str, RewardType] = {
    "none": RewardType(lambda context: in_module("base", "Reward")(), about="the environment's reward alone"),
    "online_cls": RewardType(
        in_module("oni.retrieval", "make"),
        by_goal=True,
        about="an LLM says of each new caption whether it is helpful; the label pays",
        query="classification",
        learns_answers=lambda config: config.reward.unanswered == "model",
        soft=True,
        of_events=True,
        settings=(CaptionRewardConfig,),
    ),
    "online_cls_reward_model": RewardType(
        in_module("oni.classification", "make"),
        by_goal=True,
        about="the same; a classifier learns from the labels, and pays for captions that have none",
        query="classification",
        learns_answers=lambda config: True,
        soft=True,
        of_events=True,
        settings=(CaptionRewardConfig,),
    ),
    "online_motif": RewardType(
        in_module("oni.ranking", "make"),
        by_goal=True,
        about="an LLM says which of two captions is better; a model learns a reward from it while the policy learns",
        query="ranking",
        threshold=-0.5,
        of_events=True,
        settings=(CaptionRewardConfig,),
        observations=lambda config: _other_observations(config.network),
    ),
    "motif": RewardType(
        in_module("oni.motif", "make"),
        about="a model that launch.train_reward has learnt from a data set of pairs (--reward_dir)",
        threshold=0.5,
        needs="reward_dir",
        settings=(CaptionRewardConfig,),
        observations=lambda config: _other_observations(trained_model(config.reward.reward_dir).network),
        check=_needs_folder("motif", "launch.train_reward"),
    ),
    "cosine-bow": RewardType(
        in_module("oni.cosine", "make"),
        by_goal=True,
        about="similarity of the caption to the goal, by word vectors (--word_vectors); no LLM",
        threshold=0.0,
        needs="word_vectors",
        settings=(CaptionRewardConfig,),
        check=lambda config: in_module("oni.word_vectors", "check_word_vectors")(config.reward.word_vectors),
    ),
    "count": RewardType(
        in_module("baselines.count", "make"),
        about="every caption, by how often it was seen in the episode alone: what labels have to beat; no LLM",
        of_events=True,
        settings=(CaptionRewardConfig,),
    ),
    "rnd": RewardType(
        in_module("baselines.rnd", "make"),
        about="curiosity: the error of predicting a random network",
        settings=(RndConfig,),
    ),
    "noveld": RewardType(
        in_module("baselines.rnd", "make_noveld"),
        about="curiosity: how much more novel a state is than the one before it",
        settings=(RndConfig, NovelDConfig),
    ),
    "apt": RewardType(
        in_module("baselines.apt", "make"),
        about="curiosity: the distance to the nearest states of the batch",
        settings=(AptConfig,),
    ),
    GOAL_REWARDED: RewardType(
        in_module("ellm.goal_rewards", "make"),
        about="reaching goals that an LLM suggests for a state, once each an episode",
        query="suggestions",
        asks=lambda config: config.env.goals.suggester in BY_LLM and not config.reward.reward_dir,
        learns_answers=lambda config: config.env.goals.suggester == MODEL and not config.reward.reward_dir,
        may_need=("word_vectors", "reward_dir"),
        pays_goals=True,
        settings=(EmbeddingsConfig,),
        observations=lambda config: [GOAL_REWARD],
        check=in_module("embeddings.settings", "check_suggestions"),
    ),
    "bk-code": RewardType(
        in_module("bk.bk_code", "make"),
        about="shaped by a potential in code, which an LLM wrote (launch.write_potential)",
        needs="reward_dir",
        settings=(PotentialConfig, CodeConfig),
        observations=in_module("bk.bk_code", "observations"),
        check=_check_code,
    ),
    "bk-pref": RewardType(
        in_module("bk.bk_pref", "make"),
        about="shaped by a potential that was learnt from an LLM's comparisons (launch.train_potential)",
        needs="reward_dir",
        settings=(PotentialConfig,),
        observations=in_module("bk.bk_pref", "observations"),
        check=_needs_folder("bk-pref", "launch.train_potential"),
    ),
    "bk-goal": RewardType(
        in_module("bk.bk_goal", "make"),
        about="shaped by similarity to goals that an LLM named (launch.write_goals)",
        needs="reward_dir",
        may_need=("word_vectors",),
        settings=(PotentialConfig, GoalPotentialConfig, EmbeddingsConfig),
        observations=in_module("bk.bk_goal", "observations"),
        check=in_module("embeddings.settings", "check_goals"),
    ),
}
NONE = REWARD_TYPES["none"]
_OURS = frozenset(REWARD_TYPES)  # a plugin's may read the settings of any


def register_reward(name: str, reward: RewardType) -> None:
    """Registers a reward as --llm_reward_type NAME. Raises UserError when the name is taken or not valid."""
    _check_name(name)
    bring(RewardConfig(), reward.settings)
    REWARD_TYPES[name] = reward


def register_llm_reward(
    name: str, prompt: str, read: Callable[[str], Any], value: Callable[[Any], float] = float, about: str = ""
) -> None:
    """Registers a reward that asks an LLM about each caption, as --llm_reward_type NAME and as a kind of query.

    Args:
        name: name of both.
        prompt: question to the LLM, with {caption}; --prompt_file replaces it.
        read: returns the answer in an LLM's text, as what JSON can hold; None: the text can't be read.
        value: returns what an answer pays. A caption that has none yet pays nothing.
        about: a line for --help llm_reward_type.

    Raises:
        UserError: the name is taken or not valid, or the prompt has no {caption}.
    """
    _check_name(name)
    kind = AboutCaption(name, prompt, read, sys._getframe(1).f_globals["__name__"])
    register_query(kind)
    make = in_module("oni.plugin_question", "make")
    register_reward(
        name,
        RewardType(
            lambda context: make(context, kind, value),
            name,
            by_goal=True,
            settings=(CaptionRewardConfig,),
            about=about,
        ),
    )


def _check_name(name: str) -> None:
    if name in REWARD_TYPES:
        raise UserError(f"the reward {name} is registered already: choose another name")
    if not name or "," in name or "/" in name:
        raise UserError(f"the reward name {name!r} is not valid: choose one without commas and slashes")


def reward_type(config: Config) -> RewardType:
    """Returns the type that `llm_reward_type` names in a config of one, plugins included. UserError: an unknown one."""
    load_plugins(config.env.plugin)
    name = config.reward.llm_reward_type
    if name not in REWARD_TYPES:
        problem = f"--llm_reward_type {name!r} is not known" if name else "--llm_reward_type must be given"
        known = f"use one of {', '.join(REWARD_TYPES)}; one of your own needs --plugin"
        raise UserError(problem + nearest_first(name, REWARD_TYPES, known))
    kind = REWARD_TYPES[name].query
    if kind and kind not in QUERIES:
        raise UserError(f"--llm_reward_type {name}: its kind of query {kind!r} is not registered")
    return REWARD_TYPES[name]


def questions(config: Config) -> list[tuple[AnnotationConfig, str]]:
    """Returns the run's questions, deduplicated: settings and kind of query. UserError: an unknown type."""
    return list(dict.fromkeys((term.annotation, kind) for term in config.terms_by_goal() if (kind := _query(term))))


def _query(config: Config) -> str:
    """Returns the kind of query that a reward asks; empty: it asks nothing."""
    kind = reward_type(config)
    if not kind.asks(config):
        return ""
    is_strict = kind.query == Suggestions.name and config.env.goals.parser == "strict"
    return StrictSuggestions.name if is_strict else kind.query


def term_labels(config: Config) -> tuple[str, ...]:
    """Returns the labels of a run's rewards: their types, with the goal where one agent has several."""
    return reward_labels([_name(term, config) for term in config.terms_by_goal()])


def _name(term: Config, config: Config) -> str:
    name = term.reward.llm_reward_type
    return f"{name}_{term.annotation.goal_key}" if config.goals() else name


def make_rewards(
    config: Config, spec: EnvSpec, replicas: "Replicas | None" = None, frozen: bool = False
) -> "RewardSum":
    """Makes the rewards that `llm_reward_type` names; see `RewardContext`.

    Raises:
        UserError: an unknown type, or unusable settings or files.
    """
    import jax

    from oni_jax.parallel import Replicas
    from oni_jax.rewards.terms import EVERY_GOAL, RewardSum, Term

    asked = questions(config)
    if frozen and replicas is None:  # nothing is trained, whatever number of devices a batch could be sharded over
        replicas = Replicas(jax.local_devices()[:1])

    def term(reward_config: Config) -> Term:
        reward, query = reward_config.reward, _query(reward_config)
        question = asked.index((reward_config.annotation, query)) if query else -1
        made = reward_type(reward_config).make(RewardContext(reward_config, spec, replicas, frozen))
        about_one = bool(query) and len(QUERIES[query].placeholders) == 1
        goals = config.goals()
        goal = goals.index(reward_config.annotation.goal_key) if goals else EVERY_GOAL
        return Term(_name(reward_config, config), made, reward.llm_reward_coeff, question, about_one, goal)

    return RewardSum([term(each) for each in config.terms_by_goal()])


def observations_read(config: Config) -> Collection[str]:
    """Names of the observations that the policy or a reward reads. UserError: a reward model can't be read."""
    load_plugins(config.env.plugin)  # may register the encoder
    of_rewards = (name for term in config.terms() for name in reward_type(term).observations(term))
    goals = (EPISODE_GOAL,) if config.goals() else ()
    return {*policy_observations(config.network), *of_rewards, *goals}


def threshold(config: Config) -> float:
    """Returns `eps_threshold_quantile`, or the type's default. Raises UserError when it is not a number."""
    text, default = config.reward.eps_threshold_quantile, reward_type(config).threshold
    if not text:
        return default or 0.0
    try:
        value = float(text)
        if abs(value) < float("inf"):
            return value
    except ValueError:
        pass
    raise UserError(f"--eps_threshold_quantile {text}: must be a number")


def check_rewards(config: Config) -> None:
    """Checks the rewards' settings without building them. Raises UserError."""
    terms = config.terms()
    for term in terms:
        _check_reward(term)
        if len(terms) > 1 and reward_type(term) is NONE:
            raise UserError("--llm_reward_type none: adds nothing to others; leave it out")
    _check_read(terms)
    _check_asked_next(terms)


def _check_read(terms: Sequence[Config]) -> None:
    """Raises UserError: a setting was changed that only types read that the run does not have."""
    types = {term.reward.llm_reward_type for term in terms}
    if not types <= _OURS:
        return
    for section in (section for term in terms for section in sections(term.reward).values()):
        readers = [name for name, kind in REWARD_TYPES.items() if type(section) in kind.settings]
        for name, value in given(section).items() if readers and not types & {*readers} else ():
            raise UserError(f"--{name} {value}: has no meaning without --llm_reward_type {' or '.join(readers)}")


def _check_asked_next(terms: Sequence[Config]) -> None:
    """Raises UserError: what a model is unsure of is to be asked, and none of the run's rewards has one."""
    unsure = [term for term in terms if term.annotation.ask == "uncertain"]
    if unsure and not any(
        reward_type(term).learns_answers(term) or term.reward.llm_reward_type not in _OURS for term in unsure
    ):
        raise UserError(
            "--ask uncertain: has no meaning without a model that learns the answers: --goal_suggester model without "
            "--reward_dir, --llm_reward_type online_cls_reward_model, or --unanswered model; leave it out"
        )


def _check_reward(config: Config) -> None:
    reward, kind = config.reward, reward_type(config)
    flag = f"--llm_reward_type {reward.llm_reward_type}"
    is_none = kind is NONE
    if is_none and reward.llm_reward_coeff > 0:
        raise UserError(f"{flag}: needs --llm_reward_coeff 0, not {reward.llm_reward_coeff}")
    if not is_none and reward.llm_reward_coeff == 0:
        raise UserError(f"{flag}: needs --llm_reward_coeff above 0")
    if reward.unanswered != "nothing" and reward.llm_reward_type != "online_cls":
        raise UserError(f"--unanswered {reward.unanswered}: has no meaning with {flag}; it is of online_cls")
    if reward.llm_reward_value != "label" and not kind.soft:
        raise UserError(f"--llm_reward_value {reward.llm_reward_value}: not offered with {flag}")
    if kind.threshold is None and reward.eps_threshold_quantile:
        raise UserError(f"--eps_threshold_quantile {reward.eps_threshold_quantile}: has no meaning with {flag}")
    threshold(config)
    for name in ("reward_dir", "word_vectors"):
        value = getattr(reward, name)
        if value and name not in (kind.needs, *kind.may_need):
            raise UserError(f"--{name} {value}: has no meaning with {flag}")
    kind.check(config)
