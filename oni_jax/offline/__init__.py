"""Work before a training: pairs and segments are collected, labelled, and learnt from."""
