"""BK-Code: a potential that an LLM wrote as code; see `potentials.sandbox`."""

from collections.abc import Collection, Mapping, Sequence

from oni_jax.envs.registry import offered_spec, seen_by_code
from oni_jax.host.reporting import report
from oni_jax.rewards.base import Reward
from oni_jax.rewards.bk.code import Reads, arguments_read, read_code
from oni_jax.rewards.bk.potential import shape
from oni_jax.rewards.bk.sandbox import CodeError, Sandbox
from oni_jax.rewards.bk.window_potential import WindowPotential
from oni_jax.rewards.bk.windows import Windows, names_read
from oni_jax.rewards.registry import RewardContext
from oni_jax.settings.config import Config
from oni_jax.settings.fields import UserError
from oni_jax.types import Array


class CodePotential(WindowPotential):
    """Values windows by calling a code, once for each distinct one; what fails is counted, and 0.

    Args:
        path: of the code, for errors.
        sandbox: calls it.
        reads: the arguments that it reads: windows that differ in no other are one.
        names: of the observations that it sees.
        horizon: H, steps before the present one in a window.
        warmup_steps: see `PotentialScorer`.
    """

    def __init__(
        self, path: str, sandbox: Sandbox, reads: Reads, names: Sequence[str], horizon: int, warmup_steps: int
    ):
        super().__init__(names, horizon, warmup_steps)
        self._path, self._sandbox, self._reads = path, sandbox, reads
        self._num_failed = 0
        self._problems: set[str] = set()  # kinds of failure that were printed

    def cut(self, windows: Windows) -> Windows:
        return windows.without(past=not self._reads.past, actions=not self._reads.actions)

    def value(self, windows: Windows, rows: Sequence[int]) -> Sequence[float]:
        try:
            found = self._sandbox.call(windows.take(rows))
        except CodeError as error:
            raise UserError(f"{self._path}: {error}") from None
        for result in found:
            if result.problem:
                self._num_failed += 1
                kind = result.problem.partition(":")[0]
                if kind not in self._problems:
                    self._problems.add(kind)
                    report(f"warning: {self._path} fails on a window, which counts as 0: {result.problem}")
        return [result.value for result in found]

    def metrics(self) -> Mapping[str, Array]:
        return {**super().metrics(), "potential_calls_failed": self._num_failed}


def names_seen(config: Config) -> Sequence[str]:
    """Returns the names of the observations that a code sees."""
    return [*(seen_by_code(config.env) or offered_spec(config.env).observations)]


def observations(config: Config) -> Collection[str]:
    return names_read(names_seen(config), config.reward.potential.horizon)


def make(context: RewardContext) -> Reward:
    config, reward = context.config, context.config.reward
    path, code = read_code(reward.reward_dir)
    try:
        sandbox = Sandbox(code, reward.bk_code.workers, seen_by_code(config.env))
    except CodeError as error:
        raise UserError(f"{path}: {error}") from None
    horizon, warmup_steps = reward.potential.horizon, reward.potential.warmup_steps
    scorer = CodePotential(path, sandbox, arguments_read(code), names_seen(config), horizon, warmup_steps)
    return shape(context, scorer)
