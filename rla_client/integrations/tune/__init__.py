"""Ray Tune: recording of trials.

    tuner = tune.Tuner(train, run_config=tune.RunConfig(callbacks=[RLACallback()]))

`RLACallback` needs no change of the training code: Tune's driver writes the rows of all trials. Each trial is
a run of its own, open beside the others (`begin_beside`); a row is one append to its stream in memory. With
many trials on many nodes, `setup_rla(config)` in the trainable relieves the driver: the trial's process
writes its run on its node, and the node's agent does the rest. A trial uses one of the two.

A trial that Tune restarts continues in its run, which is found by the experiment's name and the trial's id.
Its rows stay until a row comes that is not behind the last one: then the rows from that time-step on are
moved to `abandoned-N/`. So Tune's checkpoints need no marks here.

Errors never end an experiment; they are warnings, once for each kind.
"""

from rla_client.integrations.tune.driver import RLACallback
from rla_client.integrations.tune.trainable import setup_rla

__all__ = ["RLACallback", "setup_rla"]
