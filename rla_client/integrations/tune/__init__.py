"""Ray Tune: recording of trials.

    tuner = tune.Tuner(train, run_config=tune.RunConfig(callbacks=[RLACallback()]))

`RLACallback` leaves the training code as it is: Tune's driver writes the rows of all trials. Each trial is
a run of its own, open beside the others (`begin_beside`); a row is one append to its stream in memory. With
many trials on many nodes, `setup_rla(config)` in the trainable keeps them off the driver: the trial's own
process writes a run on its node, and the node's agent does the rest. A trial has one or the other.

A trial that Tune starts again continues in its run, which it finds by the experiment's name and its own id.
All rows stay until the first one comes that is not behind the last: it and those after it take the places
of the earlier ones, which are kept in `abandoned-N/`. So Tune's checkpoints need no mark here.

Nothing here ends an experiment: what goes wrong is a warning, once for each kind of error.
"""

from rla_client.integrations.tune.driver import RLACallback
from rla_client.integrations.tune.trainable import setup_rla

__all__ = ["RLACallback", "setup_rla"]
