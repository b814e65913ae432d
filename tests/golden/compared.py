"""Recorded files that tests compare, and those that nothing computes again, with the reason."""

import json
import os
import pathlib
import subprocess
import sys

from tests.golden import DATA, REPLACED

ROOT = DATA.parents[2]
_PREFERENCES, _CURIOSITY = "tests/golden/test_preferences.py", "tests/golden/test_ellm_curiosity.py"
_NETWORKS, _SEGMENTS = "tests/golden/test_bk_networks.py", "tests/rewards/bk/test_segment_captions.py"
_SUGGESTIONS, _TASKS = "tests/golden/test_ellm_suggestions.py", "tests/golden/test_ellm_tasks.py"

TESTS = {  # name in `DATA` -> test that reads it
    "bk_dataset_format.json": "tests/offline/test_segment_published.py",
    "bk_history_windows.npz": "tests/envs/test_history.py",
    "bk_networks_crafter.npz": _NETWORKS,
    "bk_networks_minigrid.npz": _NETWORKS,
    "bk_parameter_shapes.json": _NETWORKS,
    "bk_parsing.json": "tests/rewards/bk/test_goals.py",
    "bk_potential_goal.json": "tests/rewards/bk/test_bk_goal.py",
    "bk_potentials.npz": _PREFERENCES,
    "bk_preference_small.npz": _PREFERENCES,
    "bk_preference_transformer.npz": _PREFERENCES,
    "bk_rnd_training.npz": "tests/golden/test_bk_rnd.py",
    "bk_segment_captions.json": _SEGMENTS,
    "bk_segment_sampling.json": _SEGMENTS,
    "ellm_goal_compositions.json": _TASKS,
    "ellm_noveld_reward.npz": _CURIOSITY,
    "ellm_parsing.json": _SUGGESTIONS,
    "ellm_rnd_reward.npz": _CURIOSITY,
    "ellm_single_task.json": _TASKS,
    "ellm_text_reward.json": _SUGGESTIONS,
    "ellm_yes_no.json": _SUGGESTIONS,
}
OTHER_NAMES = {
    "ellm_housekeep_yes_no.json": "ellm_yes_no.json",
    "bk_preference_transformer_minigrid.npz": "bk_preference_transformer.npz",
}
_WORLD = "the recorded episodes of that world are"
NOT_COMPUTED = {
    "bk_preference_transformer_crafter.npz": "the network is that of preference_transformer_minigrid.npz",
    "ellm_dqn_update.npz": "the DQN is not carried over, see docs/differences.md",
    "ellm_similarity_minilm.npz": "the published sentence encoder's weights are not part of the tests",
    "ellm_actions.json": _WORLD,
    "ellm_agent.json": "the DQN is not carried over, see docs/differences.md",
    "ellm_oracle_prerequisites.json": _WORLD,
    "ellm_word_vocabulary.json": _WORLD,
    "ellm_world_rules.json": _WORLD,
    "bk_potential_code.json": "the code is NumPy's; tests/rewards/bk/test_bk_code.py runs it on lists",
    "bk_potentials_descriptions.json": "nothing reads the words of potentials.npz, whose numbers are compared",
    "bk_preference_small_gradient_norms.json": "preference_small.npz has the gradients themselves",
    "bk_transcripts.json": "tests/golden/test_bk_transcripts.py reads it where it lies, beside its prompts",
    "bk_prompts.json": "prompts are worded anew, see docs/differences.md",
    "ellm_prompts.json": "prompts are worded anew, see docs/differences.md",
    "curves.json": "docs/results/learning_parity.md compares the learning curves",
}


def name_of(path: pathlib.Path) -> str:
    """Returns a recording's name in `DATA`; in a folder of a system, as bk/, it lacks the system's."""
    for name in (path.name, f"{path.parent.name}_{path.name}"):
        if (name := OTHER_NAMES.get(name, name)) in (*TESTS, *NOT_COMPUTED):
            return name
    return ""


def compare_by_test(name: str, path: pathlib.Path) -> int:
    """Runs the test of a recording on a file in its place, and prints what came of it. Returns the file's exit code."""
    if reason := NOT_COMPUTED.get(name, ""):
        print(f"{path}: known, and not computed again: {reason}")
        return 0
    environment = {**os.environ, REPLACED: json.dumps({name: str(path.resolve())})}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", TESTS[name]]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    said = (done.stdout.splitlines() or [""])[-1]
    print(f"{path}: {'FAILED' if done.returncode else 'ok'}: {TESTS[name]}: {said}")
    return 1 if done.returncode else 0
