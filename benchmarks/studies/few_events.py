"""Study of how many of a judge's labels of events it takes, how right and how soon, on Crafter without its reward."""

import dataclasses

from benchmarks.studies import crafter, judged

STUDY = dataclasses.replace(
    crafter.STUDY,
    name="few_events",
    question="From how few labels of events, how wrong and how late, are Crafter's achievements unlocked?",
    cases=(
        *judged.cases(
            "--llm_reward_type online_cls --llm_reward_coeff 0.1",
            judged.COUNT,
            caps=(3, 10),
            wrong=(5, 10, 20, 30, 50),  # half: by chance
            late=(1, 10, 60),
        ),
        judged.COUNT.replace("count:", "count_states:") + " --caption state",
    ),
    axes=("root_env=Crafter-v1", "seed+judge_wrong_seed=1-5"),
    flags=f"{crafter.STUDY.flags} --extrinsic_reward_coeff 0".replace("5000000", "2000000"),
    compared=("all_answers", "count"),
    drawn=judged.DRAWN,
    also=("labels_held",),
    note=(
        "Labels end 2.3 [1.8, 2.8] above the control `count_states`, with a mark, which pays every caption of a "
        "state, less for each time in an episode, and asks nobody: so by the means more than half of what they "
        "gain over no reward is theirs. Over no reward three labels gain half of what all 22 to 24 gain that a "
        "run meets, but no more than `count_states` is shown to: 0.35 [-0.15, 0.85]. Ten gain three quarters, 1.2 "
        "[0.7, 1.7] more than `count_states`, with a mark: an event says what was done, and is looked up again "
        "whenever it is done. No loss is seen of a fifth of them wrong, nor of ten seconds; three tenths wrong "
        "may cost a fifth of the gain over the run, without a mark. A minute late, of runs of two, costs six "
        "tenths of the gain at the end: the runs hold none in their first half, then two until nearly the end, "
        "one of them to its end. Which labels come first is chance, as which are wrong, and differs from seed to "
        "seed. They are those of fixed rules, not of an LLM. Other programs ran beside some of the runs."
    ),
)
