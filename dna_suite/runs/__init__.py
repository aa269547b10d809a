"""Run folders, records and reports; checkpoints and the callbacks of training."""
