"""Launchers as users of garage wrote them, 2020.06 and later, with nothing but their imports changed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import cloudpickle
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "client" / "launcher"))
import launchers

from rla_client.launcher.pending_streams import await_end

CEM = '''
import collections
import gymnasium as gym
import numpy as np
from rla_client import wrap_experiment
from rla_client.launcher import LocalRunner
from rla_client.launcher.deterministic import set_seed
from rla_client.launcher.dowel.dowel_logger import logger
from rla_client.launcher.dowel.table_input import tabular
from rla_client.launcher.sampling.local_sampler import LocalSampler


class EnvSpec:
    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space


class GarageEnv(gym.Wrapper):
    def __init__(self, env=None, env_name=''):
        super().__init__(env or gym.make(env_name))
        self._garage_spec = EnvSpec(self.env.observation_space, self.env.action_space)

    @property
    def spec(self):
        return self._garage_spec

    def reset(self, **kwargs):
        return self.env.reset(**kwargs)


class CategoricalPolicy:
    def __init__(self, env_spec):
        self.w = np.zeros((env_spec.observation_space.shape[0], env_spec.action_space.n))

    def get_action(self, observation):
        return int(np.argmax(observation @ self.w)), dict(prob=np.ones(2))

    def reset(self, do_resets=None):
        pass

    def get_param_values(self):
        return self.w.ravel().copy()

    def set_param_values(self, flat):
        self.w = flat.reshape(self.w.shape)


class CEM:
    def __init__(self, env_spec, policy, n_samples, max_path_length=500):
        self.env_spec, self.policy, self.max_path_length = env_spec, policy, max_path_length
        self._n_samples = n_samples
        self._episode_reward_mean = collections.deque(maxlen=100)

    def train(self, runner):
        self._cur_std, self._cur_mean = 1.0, self.policy.get_param_values()
        self._returns, self._params = [], [self._cur_mean.copy()]
        last_return = None
        for _ in runner.step_epochs():
            for _ in range(self._n_samples):
                runner.step_path = runner.obtain_samples(runner.step_itr)
                last_return = self.train_once(runner.step_itr, runner.step_path)
                runner.step_itr += 1
        return last_return

    def train_once(self, itr, paths):
        returns = [sum(path['rewards']) for path in paths]
        assert all(len(path['dones']) <= self.max_path_length and path['dones'][-1] for path in paths)
        assert paths[0]['agent_infos']['prob'].shape[1] == 2
        self._episode_reward_mean.extend(returns)
        tabular.record('Evaluation/Iteration', itr)
        tabular.record('Extras/EpisodeRewardMean', np.mean(self._episode_reward_mean))
        self._returns.append(np.mean(returns))
        if (itr + 1) % self._n_samples == 0:
            best = np.array(self._params)[np.argsort(self._returns)[-2:]]
            self._cur_mean, self._cur_std = best.mean(axis=0), best.std(axis=0) + 0.1
            self._returns.clear()
            self._params.clear()
        flat = np.random.standard_normal(len(self._cur_mean)) * self._cur_std + self._cur_mean
        self.policy.set_param_values(flat)
        self._params.append(flat)
        logger.log('average {:.1f}'.format(np.mean(returns)))
        return np.mean(returns)


@wrap_experiment
def cem_cartpole(ctxt=None, seed=1):
    """Train CEM with CartPole."""
    set_seed(seed)
    runner = LocalRunner(snapshot_config=ctxt)
    env = GarageEnv(env_name='CartPole-v1')
    policy = CategoricalPolicy(env.spec)
    algo = CEM(env_spec=env.spec, policy=policy, n_samples=4, max_path_length=100)
    runner.setup(algo, env, sampler_cls=LocalSampler)
    runner.train(n_epochs=3, batch_size=200, plot=True, store_paths=True)


cem_cartpole(seed=1)
'''

VPG = '''
import sys
import gymnasium
import numpy as np
import torch
from rla_client.launcher import EpisodeBatch, FragmentWorker, LocalSampler, MultiprocessingSampler
from rla_client.launcher import StepType, Trainer, logger, set_seed, tabular, wrap_experiment


class GymEnv:
    """No gymnasium.Env, and its reset takes no seed."""

    def __init__(self, name, max_episode_length):
        self._env = gymnasium.make(name)
        self.observation_space, self.action_space = self._env.observation_space, self._env.action_space
        self.max_episode_length = max_episode_length

    def reset(self):
        return self._env.reset()

    def step(self, action):
        return self._env.step(int(action))

    def close(self):
        self._env.close()


class Policy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 2)

    def forward(self, observations):
        return torch.distributions.Categorical(logits=self.net(torch.as_tensor(observations).float()))

    def get_action(self, observation):
        actions, infos = self.get_actions([observation])
        return actions[0], {key: value[0] for key, value in infos.items()}

    def get_actions(self, observations):
        with torch.no_grad():
            dist = self(np.asarray(observations))
            return dist.sample().numpy(), dict(logits=dist.logits.numpy())

    def get_param_values(self):
        return self.state_dict()

    def set_param_values(self, values):
        self.load_state_dict(values)


class VPG:
    def __init__(self, policy, sampler):
        self.policy, self._sampler = policy, sampler
        self._optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)

    def train(self, trainer):
        last_return = None
        self._eval_env = trainer.get_env_copy()
        for epoch in trainer.step_epochs():
            eps = trainer.obtain_episodes(trainer.step_itr, agent_update=self.policy.get_param_values())
            last_return = self._train_once(trainer.step_itr, eps)
            trainer.step_episode = eps
            trainer.step_itr += 1
        return last_return

    def _train_once(self, itr, eps):
        assert isinstance(eps, EpisodeBatch)
        assert eps.padded_observations.shape[:2] == (len(eps.lengths), max(eps.lengths))
        with tabular.prefix(type(self).__name__ + '/'):
            tabular.record('Return', np.mean([sum(rewards) for rewards in eps.padded_rewards]))
            tabular.record('Terminated', sum(kind == StepType.TERMINAL for kind in eps.step_types))
        advantages = torch.as_tensor(eps.rewards * np.concatenate([np.arange(n)[::-1] for n in eps.lengths]))
        loss = -(self.policy(eps.observations).log_prob(torch.as_tensor(eps.actions)) * advantages).mean()
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        return loss.item()


def run_task(ctxt, seed, sampler_class, worker_args={}):
    set_seed(seed)
    env = GymEnv('CartPole-v1', max_episode_length=50)
    trainer = Trainer(ctxt)
    policy = Policy()
    more = dict(worker_class=FragmentWorker, worker_args=worker_args) if worker_args else {}
    sampler = {'local': LocalSampler, 'multi': MultiprocessingSampler}[sampler_class](
        agents=policy, envs=env, max_episode_length=env.max_episode_length, n_workers=2, **more)
    trainer.setup(VPG(policy, sampler), env)
    return trainer.train(n_epochs=4, batch_size=100, store_episodes=True)


task = wrap_experiment(run_task, archive_launch_repo=False, snapshot_mode='gap_and_last', snapshot_gap=2)
for name in ('one', 'two'):
    task({'prefix': sys.argv[1], 'name': name}, seed=3, sampler_class=sys.argv[1])
fragments = wrap_experiment(run_task, name_parameters='all', name='fragments')
fragments({'archive_launch_repo': False}, seed=3, sampler_class='local', worker_args={'n_envs': 3})


@wrap_experiment(archive_launch_repo=False)
def resume_it(ctxt, saved_dir, from_epoch='last'):
    trainer = Trainer(ctxt)
    args = trainer.restore(from_dir=saved_dir, from_epoch=from_epoch)
    assert (args.start_epoch, args.n_epochs, args.batch_size) == (3, 4, 100)
    trainer.resume(n_epochs=6)


resume_it(saved_dir='data/local/' + sys.argv[1] + '/one', from_epoch=2)
'''


def run(folder: Path, text: str, *arguments: str) -> Path:
    """Run a launcher; the folder of its experiments."""
    (folder / "launcher.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "launcher.py", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=2 * launchers.DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "data" / "local"


@pytest.mark.slow
def test_cem_of_2020(agent: object, tmp_path: Path) -> None:
    folder = run(tmp_path, CEM) / "experiment" / "cem_cartpole"
    await_end(folder)
    rows = launchers.rows(folder)
    assert [row["Evaluation/Iteration"] for row in rows] == ["3", "7", "11"]
    assert int(rows[-1]["TotalEnvSteps"]) >= 3 * 4 * 200
    text = (folder / "debug.log").read_text()
    assert "epoch #2 | average" in text
    assert text.count("plot=True shows nothing") == 1
    with open(folder / "params.pkl", "rb") as file:
        assert len(cloudpickle.load(file)["stats"].last_episode) > 1


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["local", pytest.param("multi", marks=pytest.mark.soak)])
def test_vpg_of_today(agent: object, tmp_path: Path, sampler: str) -> None:
    base = run(tmp_path, VPG, sampler)
    folders = [base / sampler / "one", base / sampler / "two", base / "experiment" / "resume_it"]
    for folder in folders:
        await_end(folder)
    one, two, resumed = (launchers.rows(folder) for folder in folders)
    assert len(one) == 4
    assert one == two
    assert [row["TotalEnvSteps"] for row in resumed][:1] == [one[3]["TotalEnvSteps"]]
    assert resumed[0] == one[3]
    assert len(resumed) == 3
    assert {"itr_0.pkl", "itr_2.pkl", "params.pkl"} <= {path.name for path in folders[0].iterdir()}
    (fragments,) = (base / "experiment").glob("fragments*")
    assert fragments.name == "fragments_seed=3_sampler_class=local_worker_args={'n_envs': 3}"
