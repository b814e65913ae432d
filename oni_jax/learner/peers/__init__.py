"""Runs of several processes, one per host, each with separate environments and accelerators.

They compute one update, of one batch, over a mesh of all their accelerators (`parallel`). Other state is replicated:
once an update, the captions, labels and reports of each process are all-gathered (`Peers.all_gather`). So every process
draws the same pairs, has the same labels in the same order, and takes the same gradient steps of a reward model; only
the primary process (index 0) queries the LLM, stores labels and checkpoints, and writes anything but environments'
files. Data goes through JAX's CPU collectives, so that it does not queue behind the accelerators' work.
"""
