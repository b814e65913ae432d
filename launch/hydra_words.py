"""Settings of ELLM's published programs, `key=value` words of Hydra, and the flags that stand for them."""

from typing import NamedTuple


class Word(NamedTuple):
    """A published setting.

    Attributes:
      key: without a leading `+`; a `*` at its end stands for any ending, where no word before it has the key.
      value: which the flags stand for; empty: any, which takes the place of VALUE in the flags.
      flags: ours, beside `--config ellm_oracle` where they name no other; empty: there are none.
      note: on how ours differs, or on what to do without.
    """

    key: str
    value: str
    flags: str
    note: str = ""


VALUE = "VALUE"
HOUSEKEEP, NO_REPLAY = "Housekeep is not built; leave it out", "there is no replay here; leave it out"
NO_MEANING = "has no meaning here; leave it out"
LM, AGENT = "env_spec.lm_spec.", "agent."
SUBGOALS = "--config ellm_task --crafter_subgoals"
WORDS = (
    Word("env_spec.name", "CrafterTextEnv-v1", "--config ellm_oracle", "or another `ellm_…`"),
    Word(
        "env_spec.name",
        "CrafterReward-v1",
        "--root_env CrafterReward-v1 --llm_reward_type none --llm_reward_coeff 0 --extrinsic_reward_coeff 1 "
        "--goal_suggester none --goal_conditioned false",
    ),
    Word("env_spec.name", "Housekeep", "", "is not built"),
    Word(
        f"{LM}lm_class",
        "GPTLanguageModel",
        "--config ellm_llm --goal_suggester llm --llm_server_addr HOST:PORT",
    ),
    Word(f"{LM}lm_class", "SimpleOracle", "--config ellm_oracle"),
    Word(f"{LM}lm_class", "BaselineModel", "--config ellm_novelty"),
    Word(f"{LM}lm", "", f"--llm_model {VALUE}"),
    Word(f"{LM}max_num_goals", "", f"--config ellm_uniform --goal_count {VALUE}"),
    Word(f"{LM}all_goals", "", "", "they are the world's actions; leave it out"),
    Word(f"{LM}prompt", "", f"--config ellm_llm --prompt_file {VALUE}", "a file of ours, see docs/extending.md"),
    Word(f"{LM}max_tokens", "", f"--config ellm_llm --llm_max_tokens {VALUE}"),
    Word(f"{LM}budget", "", "--config ellm_llm --llm_max_labels NUMBER", "answers, not dollars"),
    Word(f"{LM}dummy_lm", "", "--goal_suggester oracle", "which asks no LLM either"),
    Word(f"{LM}prob_threshold", "", f"--classification_threshold {VALUE}", "of yes_no; Housekeep is not built"),
    Word(f"{LM}novelty_bonus", "False", "--goal_repeats"),
    Word(f"{LM}novelty_bonus", "True", "--goal_repeats false"),
    Word(f"{LM}temperature", "", f"--config ellm_llm --llm_temperature {VALUE}"),
    Word(f"{LM}openai_key", "", "--config ellm_llm --llm_api_key env:NAME", "never the key itself"),
    Word("openai_key", "", "--config ellm_llm --llm_api_key env:NAME", "never the key itself"),
    Word(f"{LM}openai_org", "", "", "a server takes a key alone; leave it out"),
    Word("openai_org", "", "", "a server takes a key alone; leave it out"),
    Word("max_seq_tokens", "", f"--config ellm_llm --llm_max_tokens {VALUE}", "captions have no such limit"),
    Word("env_spec.action_space_type", "", f"--crafter_actions {VALUE}"),
    Word("env_spec.length", "", f"--crafter_length {VALUE}"),
    Word("env_spec.dying", "True", "--crafter_dying on"),
    Word("env_spec.dying", "False", "--crafter_dying off"),
    Word(
        "env_spec.threshold",
        "",
        f"--config ellm_llm --goal_similarity embeddings --goal_threshold {VALUE}",
        "needs the extra `sentences`, or other --potential_embeddings",
    ),
    Word("env_spec.check_ac_success", "True", "--goal_success loose", "ours, strict, does not pay for naming a thing"),
    Word("env_spec.check_ac_success", "False", "--goal_success tried"),
    Word("env_spec.single_task", "", f'--config ellm_task --crafter_task "{VALUE}"'),
    Word("env_spec.single_goal_hierarchical", "True", f"{SUBGOALS} paid --crafter_task_repeats"),
    Word(
        "env_spec.single_goal_hierarchical",
        "False",
        f"{SUBGOALS} hidden --crafter_task_repeats",
    ),
    Word(
        "env_spec.single_goal_hierarchical",
        "reward_last",
        f"{SUBGOALS} shown --crafter_task_repeats",
    ),
    Word("env_spec.seed", "", f"--seed {VALUE}"),
    Word("env_spec.use_sbert", "", "", NO_MEANING),
    Word("env_spec.use_state_captioner", "", "", "learned captioners are not built; leave it out"),
    Word("env_spec.use_transition_captioner", "", "", "learned captioners are not built; leave it out"),
    Word("env_spec.housekeep*", "", "", HOUSEKEEP),
    Word("env_spec.use_language_state", "", "", HOUSEKEEP),
    Word("env_spec.*", "", "", NO_MEANING),
    Word("eval_video_goals", "", 'launch.evaluate --crafter_task "attack cow" --record 2'),
    Word("single_goal_eval", "", 'launch.evaluate --crafter_task "attack cow"', "one task a call"),
    Word("num_eval_episodes", "", f"launch.evaluate --episodes {VALUE}"),
    Word(
        "eval_every_frames",
        "",
        f"--save_every_steps {VALUE} --save_every_sec 0 --keep_checkpoints 1000",
        "and launch.evaluate --checkpoint all",
    ),
    Word("frame_stack", "", "--crafter_view grey", "which shows 4 frames; without it, policies see tiles"),
    Word("use_image", "True", "--crafter_view grey"),
    Word("use_image", "False", "--language_state", "beside the tiles"),
    Word("use_goal", "True", "--goal_conditioned"),
    Word("use_goal", "False", "--goal_conditioned false"),
    Word("use_language_state", "sbert", "--language_state"),
    Word("use_language_state", "conv", "--language_state"),
    Word("use_language_state", "null", "--language_state false"),
    Word("finetune_snapshot", "True", "--init_from RUN"),
    Word("finetune_settings", "", "--init_from RUN", "all of it goes on learning"),
    Word("snapshot_path", "", f"--init_from {VALUE}", "the folder of a run of ours"),
    Word("expl_agent_path", "", f"--guide {VALUE} --guide_steps 2000000", "a run of ours"),
    Word("other_model_prob", "", f"--guide RUN --guide_steps 2000000 --guide_prob {VALUE}"),
    Word("train_after_reward", "True", "--train_after_reward"),
    Word("train_after_reward", "False", "--train_after_reward false"),
    Word(
        "decay_after_reward",
        "True",
        "--guide RUN --guide_steps 2000000 --decay_after_reward",
        "without a guide nothing falls here: leave it out of fine-tuning",
    ),
    Word("decay_after_reward", "False", "--decay_after_reward false"),
    Word("resume_id", "", f"--experiment {VALUE}", "which resumes a run by its name"),
    Word("seed", "", f"--seed {VALUE}"),
    Word("exp_name", "", f"--experiment {VALUE}"),
    Word("experiment", "", f"--experiment {VALUE}"),
    Word("device", "cpu", "--device cpu"),
    Word("device", "", "", "an accelerator is used where there is one; leave it out"),
    Word("num_train_frames", "", f"--train_for_env_steps {VALUE}"),
    Word("discount", "", f"--gamma {VALUE}"),
    Word("lr", "", f"--learning_rate {VALUE}"),
    Word("batch_size", "", f"--batch_size {VALUE}", "of a learner without replay: 64 is too small"),
    Word(f"{AGENT}_target_", "baselines.rnd.RNDAgent", "--llm_reward_type rnd --llm_reward_coeff 1"),
    Word(f"{AGENT}_target_", "baselines.icm_apt.ICMAPTAgent", "--llm_reward_type apt --llm_reward_coeff 1"),
    Word(f"{AGENT}_target_", "dqn.DQNAgent", "", "the DQN is not built; the learner here is APPO"),
    Word(f"{AGENT}noveld", "True", "--llm_reward_type noveld --llm_reward_coeff 1"),
    Word(f"{AGENT}hidden_dim", "", f"--hidden_size {VALUE}"),
    Word(f"{AGENT}reward_scale", "", f"--reward_scale {VALUE}"),
    Word(f"{AGENT}use_language", "True", "--language_state", "which RND and its like read with the rest"),
    Word(f"{AGENT}use_language", "False", "--language_state false"),
    Word(f"{AGENT}train_eps*", "", "--exploration_loss_coeff NUMBER", "the policy draws its actions: no epsilon"),
    Word(f"{AGENT}eval_eps", "", "launch.evaluate --policy greedy", "no epsilon"),
    Word(f"{AGENT}*", "", "", "belongs to the DQN, which is not built; leave it out"),
    Word("use_wandb", "True", "--wandb"),
    Word("use_tb", "", "", "TensorBoard's files are always written; leave it out"),
    Word("save_video", "", "launch.evaluate --record 2"),
    Word("train_log_every", "", "--log_every_sec SECONDS", "by time, not by steps"),
    Word("save_snapshot", "", "--save_every_sec SECONDS"),
    Word("clip_reward", "", "--reward_clip NUMBER"),
    Word("use_extr_rew", "", "--extrinsic_reward_coeff 1", "which is read, as published it is not"),
    *(
        Word(key, "", "", NO_REPLAY)
        for key in ("replay_buffer*", "save_buffer", "offline_buffer", "save_offline", "use_offline_buffer", "nstep")
    ),
    Word("num_seed_frames", "", "", NO_REPLAY),
    Word("vocab_size", "", "", NO_MEANING),
    Word("debug", "", "", NO_MEANING),
    Word("hydra*", "", "", "runs are started by launch.sweep and launch.submit; leave it out"),
)


def translated(word: str) -> str:
    """Returns what to write for a `key=value` word of the published programs, or why there is nothing; else empty."""
    key, _, value = word.lstrip("+").partition("=")
    for known in WORDS:
        is_key = key.startswith(known.key[:-1]) if known.key.endswith("*") else key == known.key
        if is_key and known.value.lower() in ("", value.lower()):
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
