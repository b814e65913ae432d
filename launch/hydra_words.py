"""Settings of ELLM's published programs, `key=value` words of Hydra, and the flags that stand for them."""

from typing import NamedTuple


class Word(NamedTuple):
    """A published setting.

    Attributes:
      key: without a leading `+`.
      value: which the flags stand for; empty: any, which takes the place of VALUE in the flags.
      flags: ours; empty: there are none.
      note: on how ours differs, or on what to do without.
    """

    key: str
    value: str
    flags: str
    note: str = ""


VALUE = "VALUE"
LM, AGENT = "env_spec.lm_spec.", "agent."
WORDS = (
    Word("env_spec.name", "CrafterTextEnv-v1", "--config ellm_oracle", "or another `ellm_…`"),
    Word("env_spec.name", "CrafterReward-v1", "--root_env CrafterReward-v1 --llm_reward_type none"),
    Word("env_spec.name", "Housekeep", "", "is not built"),
    Word(f"{LM}lm_class", "GPTLanguageModel", "--config ellm_llm --llm_server_addr HOST:PORT"),
    Word(f"{LM}lm_class", "SimpleOracle", "--config ellm_oracle"),
    Word(f"{LM}lm_class", "BaselineModel", "--config ellm_novelty"),
    Word(f"{LM}lm", "", f"--llm_model {VALUE}"),
    Word(f"{LM}max_num_goals", "", f"--goal_suggester random --goal_count {VALUE}"),
    Word(f"{LM}novelty_bonus", "False", "--goal_repeats"),
    Word(f"{LM}novelty_bonus", "True", "--goal_repeats false"),
    Word(f"{LM}temperature", "", f"--llm_temperature {VALUE}"),
    Word(f"{LM}openai_key", "", "--llm_api_key env:NAME", "never the key itself"),
    Word("openai_key", "", "--llm_api_key env:NAME", "never the key itself"),
    Word("env_spec.action_space_type", "", f"--crafter_actions {VALUE}"),
    Word("env_spec.length", "", f"--crafter_length {VALUE}"),
    Word("env_spec.dying", "True", "--crafter_dying on"),
    Word("env_spec.dying", "False", "--crafter_dying off"),
    Word("env_spec.threshold", "", f"--goal_similarity embeddings --goal_threshold {VALUE}"),
    Word("env_spec.check_ac_success", "True", "--goal_success loose", "ours, strict, does not pay for naming a thing"),
    Word("env_spec.check_ac_success", "False", "--goal_success tried"),
    Word("env_spec.single_task", "", f'--config ellm_task --crafter_task "{VALUE}"'),
    Word("env_spec.single_goal_hierarchical", "True", "--crafter_subgoals paid --crafter_task_repeats"),
    Word("env_spec.single_goal_hierarchical", "False", "--crafter_subgoals hidden --crafter_task_repeats"),
    Word("env_spec.single_goal_hierarchical", "reward_last", "--crafter_subgoals shown --crafter_task_repeats"),
    Word("env_spec.use_sbert", "", "", "has no meaning here; leave it out"),
    Word("env_spec.use_state_captioner", "", "", "learned captioners are not built; leave it out"),
    Word("env_spec.use_transition_captioner", "", "", "learned captioners are not built; leave it out"),
    Word("eval_video_goals", "", "launch.evaluate --crafter_task ... --record 2"),
    Word("use_goal", "True", "--goal_conditioned"),
    Word("use_goal", "False", "--goal_conditioned false"),
    Word("use_language_state", "sbert", "--language_state"),
    Word("use_language_state", "conv", "--language_state"),
    Word("use_language_state", "null", "--language_state false"),
    Word("finetune_snapshot", "True", "--init_from RUN"),
    Word("snapshot_path", "", f"--init_from {VALUE}", "the folder of a run of ours"),
    Word("expl_agent_path", "", f"--guide {VALUE}", "a run of ours"),
    Word("other_model_prob", "", f"--guide_prob {VALUE}"),
    Word("train_after_reward", "True", "--train_after_reward"),
    Word("train_after_reward", "False", "--train_after_reward false"),
    Word("decay_after_reward", "True", "--decay_after_reward"),
    Word("decay_after_reward", "False", "--decay_after_reward false"),
    Word("resume_id", "", f"--experiment {VALUE}", "which resumes a run by its name"),
    Word("seed", "", f"--seed {VALUE}"),
    Word("exp_name", "", f"--experiment {VALUE}"),
    Word("num_train_frames", "", f"--train_for_env_steps {VALUE}"),
    Word("discount", "", f"--gamma {VALUE}"),
    Word("lr", "", f"--learning_rate {VALUE}"),
    Word("batch_size", "", f"--batch_size {VALUE}", "of a learner without replay: 64 is too small"),
    Word(f"{AGENT}_target_", "baselines.rnd.RNDAgent", "--llm_reward_type rnd"),
    Word(f"{AGENT}_target_", "baselines.icm_apt.ICMAPTAgent", "--llm_reward_type apt"),
    Word(f"{AGENT}_target_", "dqn.DQNAgent", "", "the DQN is not built; the learner here is APPO"),
    Word(f"{AGENT}noveld", "True", "--llm_reward_type noveld"),
    Word("use_wandb", "True", "--wandb"),
)


def translated(word: str) -> str:
    """Returns what to write for a `key=value` word of the published programs, or why there is nothing; else empty."""
    key, _, value = word.lstrip("+").partition("=")
    for known in WORDS:
        if key == known.key and known.value.lower() in ("", value.lower()):
            flags, note = known.flags.replace(VALUE, value), known.note
            return f"write {flags}" + (f" ({note})" if note else "") if flags else note
    return ""


def markdown_table() -> list[str]:
    """Returns the lines of a table of all of them."""
    lines = ["| ELLM | here |", "|---|---|"]
    for key, value, flags, note in WORDS:
        ours = f"`{flags}`" if flags else ""
        lines.append(f"| `{key}={value or '…'}` | {'; '.join(filter(None, (ours, note)))} |")
    return lines
