"""Change of a training script that makes its logger lines ours (`rla integrate`)."""
