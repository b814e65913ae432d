"""Labels a data set's pairs by an LLM or a rule: which of two sub-episodes is better. Resumes where it stopped.

python -m launch.annotate_pairs --directory pairs --goal_key defaultgoal --custom_annotator_string judge
"""

import dataclasses
import sys

from launch.next_commands import command, show, values_of
from launch.program import program
from oni_jax.answers.answerer import answered_by
from oni_jax.host.runtime import StopRequest
from oni_jax.offline.annotators import file_name
from oni_jax.offline.pair_config import AnnotatePairs, TrainReward, check_annotate
from oni_jax.settings.config import Config


def _run(config: AnnotatePairs, stop: StopRequest) -> int:
    from oni_jax.offline.pair_annotation import annotate_pairs

    code = annotate_pairs(config, stop)
    if code == 0 and not stop:
        _show_next(config)
    return code


def _show_next(config: AnnotatePairs) -> None:
    """Prints how the next chunk is labelled, or a reward model trained after the last."""
    preference, annotation = config.preference, config.annotation
    if preference.chunk_number + 1 < preference.n_annotation_chunks:
        following = {**values_of(config), "chunk_number": preference.chunk_number + 1}
        return show(command("annotate_pairs", AnnotatePairs(), **following))
    if preference.annotator == "llm":
        from oni_jax.runs.plan import Plan

        by = answered_by(annotation, Plan(Config(config.env)).language, "ranking")
        annotation = dataclasses.replace(annotation, llm_model=by)
    name = preference.custom_annotator_string or file_name(preference, annotation)
    given = {"dataset_dir": preference.directory, "annotator": name, "experiment": "reward"}
    show(command("train_reward", TrainReward(), **given))


main = program("annotate_pairs", AnnotatePairs(), check_annotate, _run)

if __name__ == "__main__":
    sys.exit(main())
