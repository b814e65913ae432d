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
        "count_states: --llm_reward_type count --llm_reward_coeff 0.1 --caption state",
    ),
    axes=("root_env=Crafter-v1", "seed+judge_wrong_seed=1-5"),
    flags=f"{crafter.STUDY.flags} --extrinsic_reward_coeff 0".replace("5000000", "2000000"),
    compared=("all_answers", "count"),
    drawn=judged.DRAWN,
    also=("labels_held",),
    note=(
        "The control `count` pays every event and asks nobody: at the end no difference between it and labels is "
        "seen, and it is 0.36 [0.07, 0.65] lower over the run, without a mark. Labels differ from it in six "
        "events alone (crafter). So this is no measure of what labels are worth, but of what is lost with fewer, "
        "worse and later ones. `count_states` pays captions of states so, and gains less than half as much. At "
        "the end three labels gain half of what all 22 to 24 gain that a run meets, ten nearly three quarters: an "
        "event says what was done, and is looked up again whenever it is done. Both end below `count`, with "
        "marks. With half of the labels wrong, which is chance, the end is 1.5 [0.4, 2.7] lower than with right "
        "ones, without a mark. No loss is seen of a fifth of them wrong, nor of ten seconds; three tenths wrong "
        "may cost a fifth of the gain over the run, without a mark. A minute late, of runs of two, costs six "
        "tenths of the gain at the end: the runs hold none in nearly their first half, then two until nearly the "
        "end, one of them to its end. Which labels come first is chance, as which are wrong, and differs from "
        "seed to seed. They are those of fixed rules, not of an LLM. The runs of `count` and `wrong_50_percent` "
        "are of later commits, on another machine. Other programs ran beside some of the runs."
    ),
)
