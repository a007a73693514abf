from __future__ import annotations

from rla_client.database.tree.run_reference import match_runs


def test_the_name_that_status_prints_finds_its_run() -> None:
    day = "2026/11/21/20-30-19"
    runs = [
        ("cartpole", f"{day}-123456_noip_&seed=3&lr=0.1"),
        ("cartpole", f"{day}-223456_noip_&seed=30&lr=0.1"),
        ("pong", f"{day}-323456_noip_&seed=3&lr=0.1"),
    ]
    for reference in (
        "20-30-19 cartpole seed=3&…",
        "20-30-19 cartpole seed=3",
        "seed=3&l…  cartpole 20-30-19",
        "cartpole lr=0.1 seed=3 …",
    ):
        assert match_runs(runs, reference) == runs[:1], reference
    assert match_runs(runs, "20-30-19 cartpole seed=…") == runs[:2]
    assert match_runs(runs, "20-30-19 nothing seed=3") == []


def test_the_printed_name_may_hold_spaces_and_end_anywhere() -> None:
    day = "2026/11/21/03-19-13"
    runs = [
        ("my cart", f"{day}-123456_noip_&seed=9&note=a b&arch={{64, 64}}"),
        ("my cart", f"{day}-223456_noip_&seed=9&note=a c"),
        ("pong", f"{day}-323456_noip_&"),
    ]
    assert match_runs(runs, "03-19-13 my cart seed=9&note=a b&arch={64, 64}") == runs[:1]
    assert match_runs(runs, "03-19-13 my cart seed=9&note=a b&ar…") == runs[:1]
    assert match_runs(runs, f"my cart/{day}-123456_noip_&seed=9&no…") == runs[:1]
    assert match_runs(runs, "03-19-13 my cart seed=9&note=a c") == runs[1:2]
    assert match_runs(runs, "03-19-13 my c…") == runs[:2]
    assert match_runs(runs, "03-19-13 po…") == runs[2:]
    assert match_runs(runs, "03-19-13 pong") == runs[2:]


def test_the_folder_that_a_run_prints_finds_it() -> None:
    runs = [("cart", f"2026/11/21/03-19-13-{number}23456_noip_&seed=9") for number in (1, 2)]
    assert match_runs(runs, f"/home/me/log/runs/log/cart/{runs[0][1]}/") == runs[:1]
    assert match_runs(runs, f"results/cart/{runs[1][1]}") == runs[1:]
    assert match_runs([("log", runs[0][1])], f"log/{runs[0][1]}") == [("log", runs[0][1])]
