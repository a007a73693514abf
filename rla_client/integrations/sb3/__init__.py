"""stable-baselines3: recording of its models.

    model = PPO("MlpPolicy", "CartPole-v1")
    model.learn(100_000, callback=RLACallback(save_freq=20_000))

`configure_sb3(model)` alone records rows. If no run is open, one is opened with the model's hyper-parameters.
progress.csv has the keys and values of SB3's own CSV logger.

A run that was killed continues at its last checkpoint when the same script is started again with RLA_RUN_ID
and RLA_RESUME=allow. Parameters, optimizers, replay buffer, VecNormalize, environments, all random generators
and the state of other callbacks are restored. A script that calls `learn` several times continues in the call
in which it was killed. Only time/fps and time/time_elapsed start again.

`rla_callback.py` has the callback, `output_format.py` the rows, `model_run.py` the run of a model;
`model_state.py` the state of a model, `environments.py` of environments, `callbacks.py` of other callbacks;
`learns.py` counts the calls of `learn`.
"""

from rla_client.integrations.sb3.model_run import configure_sb3
from rla_client.integrations.sb3.output_format import RLAOutputFormat
from rla_client.integrations.sb3.rla_callback import RLACallback

__all__ = ["RLACallback", "RLAOutputFormat", "configure_sb3"]
