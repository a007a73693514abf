"""What the logger lines of scripts become."""

from __future__ import annotations

import pytest

from rla_client.cli.integrate.changes import ScriptChanges
from rla_client.cli.integrate.logger_lines import integrate
from rla_client.cli.integrate.source_edits import SourceEdits

WRITER = "from rla_client.integrations.tensorboard import SummaryWriter"
CALLBACK = "from rla_client.integrations.sb3 import RLACallback"


def changed(text: str) -> tuple[str, ScriptChanges]:
    source = SourceEdits(text.encode())
    found = integrate(source, "walk")
    again = SourceEdits(source.result().encode())
    integrate(again, "walk")
    assert not again.changed, "what is ours already stays"
    return source.result(), found


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from torch.utils.tensorboard import SummaryWriter\n", f"{WRITER}\n"),
        ("from tensorboardX import SummaryWriter as SW\n", f"{WRITER} as SW\n"),
        (
            "if x:\n    from tensorboardX import GlobalSummaryWriter, SummaryWriter\n",
            f"if x:\n    from tensorboardX import GlobalSummaryWriter\n    {WRITER}\n",
        ),
        (
            "if x: from torch.utils.tensorboard.writer import (\n    SummaryWriter, FileWriter)\n",
            f"if x: from torch.utils.tensorboard.writer import FileWriter; {WRITER}\n",
        ),
        (
            "import tensorboardX as tb  # events\nw = tb.SummaryWriter('a')\n",
            f"import tensorboardX as tb  # events\n{WRITER}\nw = SummaryWriter('a')\n",
        ),
        (
            "import torch.utils.tensorboard\nw = torch.utils.tensorboard.SummaryWriter()\n",
            f"import torch.utils.tensorboard\n{WRITER}\nw = SummaryWriter()\n",
        ),
        ("import wandb\n", "import rla_client.integrations.wandb as wandb\n"),
        ("import os, wandb as w\n", "import os\nimport rla_client.integrations.wandb as w\n"),
        ("def f():\n\tfrom wandb import init, log as l\n",
         "def f():\n\tfrom rla_client.integrations.wandb import init, log as l\n"),
        # of others, and in texts: nothing
        ("from .tensorboardX import SummaryWriter\n", None),
        ("x = 'import wandb'  # from tensorboardX import SummaryWriter\n", None),
        ("import rla_client\nimport wandb\n", None),
        ("for x in range(3):\n    print('step', x, 1 + x, f(x))\n", None),
    ],
)  # fmt: skip
def test_writers_and_wandb(before: str, after: str | None) -> None:
    assert changed(before)[0] == (before if after is None else after)


def test_the_arguments_of_a_script_with_a_writer_open_its_run() -> None:
    text, found = changed("""import tyro
from tensorboardX import SummaryWriter
if __name__ == "__main__":
    args = tyro.cli(Args)
    writer = SummaryWriter("runs/a")
""")
    assert 'args = tyro.cli(Args)\n    rla_client.init("walk", config=args)\n    writer' in text
    assert text.startswith(f"import tyro\n{WRITER}\nimport rla_client\n")
    assert found.libraries == ["SummaryWriter", "its arguments"]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("model.learn()", "model.learn(callback=RLACallback())"),
        ("model.learn(total_timesteps=1)", "model.learn(total_timesteps=1, callback=RLACallback())"),
        ("model.learn(\n    1,  # few\n)", "model.learn(\n    1, callback=RLACallback(),  # few\n)"),
        ("model.learn(1, None)", "model.learn(1, RLACallback())"),
        ("model.learn(1, callback=[a, b])", "model.learn(1, callback=[a, b, RLACallback()])"),
        ("c = Eval()\nmodel.learn(1, callback=c)", "c = Eval()\nmodel.learn(1, callback=[c, RLACallback()])"),
        ("c = [a]\nmodel.learn(1, c)", "c = [a]\nmodel.learn(1, [*c, RLACallback()])"),
    ],
)
def test_models_learn_with_our_callback(call: str, expected: str) -> None:
    head = "from stable_baselines3 import PPO\n"
    text, found = changed(f"{head}{call}\n")
    assert text == f"{head}{CALLBACK}\n{expected}\n"
    assert found.libraries == ["stable-baselines3"]


def test_callbacks_that_cannot_be_seen_are_left_to_the_user() -> None:
    for call in ("model.learn(1, callback=made)", "model.learn(1, **options)", "model.learn(*args)"):
        text = f"import stable_baselines3\n{call}\n"
        unchanged, found = changed(text)
        assert unchanged == text
        assert len(found.by_hand) == 1, call
        assert found.by_hand[0].startswith("line 2: ")


PLAIN = '''"""Trains."""
import argparse

def options():
    parser = argparse.ArgumentParser()
    args = parser.parse_args()
    args.more = 1
    return args

def main():
    args = options()
    for epoch in range(3):
        for batch in data:
            print(f"{batch} {model.loss.item():.3f}")
        print("epoch %d: %f" % (epoch, self.best), name)
        print("again", name)
main()
'''


@pytest.mark.parametrize(
    ("printed", "logged"),
    [
        ('"n :{}, score : {:.1f}".format(i, score / interval, buffer.size(), eps*100)',
         '"score": score / interval, "eps": eps*100'),
        ("f'{np.mean(scores[-100:])}', len(buffer), losses[-1], min(scores)",
         '"scores": np.mean(scores[-100:]), "buffer": len(buffer), "losses": losses[-1]'),
        ("f'{correct}/{total} ({100 * correct / total:.1f}%)'", '"correct": correct, "total": total'),
        ("total / n, total", '"total": total'),
        ("sum(pairs), text % loss, a @ b, max(map(f, x))", None),
        ('"%d" % i, f(loss), scores[i], np.mean(loss, axis=0), -i, "loss" + name', None),
    ],
)  # fmt: skip
def test_simple_sums_of_what_a_script_has_are_logged(printed: str, logged: str | None) -> None:
    script = f"for i in range(2):\n    print({printed})\n"
    assert changed(script)[0].splitlines()[5:] == (
        [] if logged is None else [f"    rla_client.log({{{logged}}}, step=i)"]
    )


def test_a_script_without_a_logger_logs_what_it_prints() -> None:
    text, found = changed(PLAIN)
    lines = [line.strip() for line in text.splitlines() if "rla_client" in line]
    assert lines == [
        "import rla_client",
        'rla_client.init("walk", config=args)',
        'rla_client.log({"batch": batch, "model/loss": model.loss.item()})',
        'rla_client.log({"best": self.best, "name": name}, step=epoch)',
    ]
    assert text.index("args = options()") < text.index("rla_client.init") < text.index("for epoch")
    assert found.libraries == ["2 line(s) that it prints"]
    without = "for i in range(2):\n    print(loss)\n"
    assert changed(without)[0].splitlines() == [
        "import rla_client", "", 'rla_client.init("walk")', "for i in range(2):", "    print(loss)",
        '    rla_client.log({"loss": loss}, step=i)',
    ]  # fmt: skip
