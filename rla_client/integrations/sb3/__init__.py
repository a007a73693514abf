"""stable-baselines3: recording of its models.

    model = PPO("MlpPolicy", "CartPole-v1")
    model.learn(100_000, callback=RLACallback(save_freq=20_000))

`configure_sb3(model)` alone gives rows. Where no run is open, one is opened, with the model's
hyper-parameters. progress.csv has the keys of SB3's own CSV logger and the same values.

A run that was killed continues where its last checkpoint was made, when the same script is started again with
RLA_RUN_ID and RLA_RESUME=allow: parameters, optimizers, replay buffer, VecNormalize, the environments and
all random generators are as they were, and so is the state of other callbacks. A script that calls `learn`
several times continues in the call in which it was killed. Only time/fps and time/time_elapsed begin anew.

`rla_callback.py` has the callback, `output_format.py` the rows, `model_run.py` the run of a model; `model.py`
says what of a model is kept, `environments.py` of environments, `callbacks.py` of other callbacks,
`learns.py` how calls of `learn` are counted.
"""

from rla_client.integrations.sb3.model_run import configure_sb3
from rla_client.integrations.sb3.output_format import RLAOutputFormat
from rla_client.integrations.sb3.rla_callback import RLACallback

__all__ = ["RLACallback", "RLAOutputFormat", "configure_sb3"]
