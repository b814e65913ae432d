"""Several processes of one run, one a host, each with games and accelerators of its own.

They compute one update, of one batch, over a mesh of all their accelerators (`parallel`). Everything else that has to
be the same everywhere they make the same: once an update, what each met is all-gathered (`Peers.all_gather`). So every
process draws the same pairs, has the same labels in the same order, and makes the same gradient steps of a reward
model; only process 0 asks the LLM, keeps the labels and the checkpoints, and writes anything but its games' files. What
is told travels by JAX's own collectives, over the CPU's, so that it does not queue behind the accelerators' work.
"""
