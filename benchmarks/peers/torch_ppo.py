"""PPO in PyTorch over a gymnasium vector, as single-file implementations are written; needs `torch` when imported."""

import os
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

GAMMA, GAE_LAMBDA = 0.99, 0.95
CLIP, VALUE_COEFF, ENTROPY_COEFF, MAX_GRAD_NORM = 0.2, 0.5, 0.01, 0.5


class Batch(NamedTuple):
    """Steps of a rollout, [T, N, ...]; a step's `ended` says that its action ended the episode."""

    observations: torch.Tensor  # [T, N, D] float32
    actions: torch.Tensor
    log_probs: torch.Tensor
    values: torch.Tensor
    rewards: torch.Tensor
    ended: torch.Tensor


class TorchPPO:
    """A dense layer, two heads, one epoch of one minibatch, Adam; on the CPU, with all cores.

    Args:
      envs: gymnasium vector of N environments whose observations are arrays.
      unroll: T, steps of each environment in an update.
      hidden_size: of the layer.
    """

    def __init__(self, envs: Any, unroll: int, hidden_size: int):
        torch.manual_seed(0)
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        size = int(np.prod(envs.single_observation_space.shape))
        self.trunk = nn.Sequential(nn.Linear(size, hidden_size), nn.ELU())
        self.logits = nn.Linear(hidden_size, int(envs.single_action_space.n))
        self.value = nn.Linear(hidden_size, 1)
        self.envs, self.unroll = envs, unroll
        self._weights = [*self.trunk.parameters(), *self.logits.parameters(), *self.value.parameters()]
        self._adam = torch.optim.Adam(self._weights, 2.5e-4, eps=1e-5, fused=True)
        self._seen = _flat(envs.reset(seed=0)[0])
        self.num_steps = unroll * envs.num_envs  # steps an update

    def run(self, num_updates: int) -> None:
        """Collects and learns from batches."""
        for _ in range(num_updates):
            self._learn(*self._collect())

    def _policy(self, observations: torch.Tensor) -> tuple[torch.distributions.Categorical, torch.Tensor]:
        features = self.trunk(observations)
        actions = torch.distributions.Categorical(logits=self.logits(features), validate_args=False)
        return actions, self.value(features).squeeze(-1)

    @torch.inference_mode()
    def _collect(self) -> tuple[Batch, torch.Tensor]:
        """Returns T steps of all environments, and the values [N] of what is seen after them."""
        steps = []
        for _ in range(self.unroll):
            seen = self._seen
            policy, values = self._policy(seen)
            actions = policy.sample()
            shown, rewards, terminated, truncated, _ = self.envs.step(actions.numpy())
            self._seen = _flat(shown)
            outcome = torch.as_tensor(rewards, dtype=torch.float32), torch.from_numpy(terminated | truncated)
            steps.append((seen, actions, policy.log_prob(actions), values, *outcome))
        return Batch(*map(torch.stack, zip(*steps))), self._policy(self._seen)[1]

    def _learn(self, batch: Batch, last_values: torch.Tensor) -> None:
        batch, last_values = Batch(*(x.clone() for x in batch)), last_values.clone()  # leaves inference mode
        advantages = generalised_advantages(batch, last_values)
        targets = advantages + batch.values
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        policy, values = self._policy(batch.observations)
        ratios = torch.exp(policy.log_prob(batch.actions) - batch.log_probs)
        gains = torch.minimum(ratios * advantages, ratios.clamp(1 - CLIP, 1 + CLIP) * advantages)
        loss = VALUE_COEFF * F.mse_loss(values, targets) - gains.mean() - ENTROPY_COEFF * policy.entropy().mean()
        self._adam.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self._weights, MAX_GRAD_NORM)
        self._adam.step()


def generalised_advantages(batch: Batch, last_values: torch.Tensor) -> torch.Tensor:
    """Computes generalised advantage estimates [T, N]."""
    advantages = torch.zeros_like(batch.values)
    trace, next_values = torch.zeros_like(last_values), last_values
    for t in reversed(range(len(batch.values))):
        goes_on = 1 - batch.ended[t].float()
        error = batch.rewards[t] + GAMMA * goes_on * next_values - batch.values[t]
        trace = error + GAMMA * GAE_LAMBDA * goes_on * trace
        advantages[t], next_values = trace, batch.values[t]
    return advantages


def _flat(observations: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(observations.reshape(len(observations), -1).astype(np.float32))
