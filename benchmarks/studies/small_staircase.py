"""Study of the named settings for machines without an accelerator on finding NetHack's stairs."""

import dataclasses

from benchmarks.studies import small_score

STUDY = dataclasses.replace(
    small_score.STUDY,
    name="small_staircase",
    question="And where the world pays only for the stairs down?",
    cases=tuple(case for case in small_score.STUDY.cases if case != small_score.ALL_MESSAGES),
    axes=("root_env=NetHackStaircaseExtendedActions-v1", *small_score.STUDY.axes[1:]),
    flags=f"{small_score.STUDY.flags} --extrinsic_reward_coeff 10",
    metric="success",
    note=(
        "No difference is found, and little is learnt: at the end 9 % of the episodes get down without answers, "
        "14 % with labels, 15 % with preferences, 10 % with preferences at 0.4; over the run 12 %, 13 %, 14 % and "
        "10 %. Of three seeds the intervals are wide. Of `embedded_...`, the settings before small_minutes, it is "
        "4 %, 8 % and 8 % at the end: there, too, no difference to `embedded_none` is found. As on the score, "
        "models of preferences at 0.4 pay for nearly all messages or for nearly none. Neither more steps were "
        "tried, nor another coefficient of labels than 0.4. The answers are those of fixed rules, not of an LLM. "
        "The machine became faster while the first of them ran: two runs took 48 minutes, the last, alone, 18; "
        "other programs ran beside those of `ranking`."
    ),
)
