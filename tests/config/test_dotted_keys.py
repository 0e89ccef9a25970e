from fedrun.config.dotted_keys import dotted, value_at

CONFIG = {"strategy": {"_target_": "Strategy", "server": {"lr": None}}, "rounds": 3}


def test_the_value_of_a_key():
    assert value_at(CONFIG, "rounds") == 3
    assert value_at(CONFIG, "strategy.server") == {"lr": None}


def test_a_key_that_does_not_exist_has_the_default_value():
    assert value_at(CONFIG, "strategy.server.lr", "none") is None
    assert value_at(CONFIG, "strategy.server.alpha", "none") == "none"
    assert value_at(CONFIG, "strategy.server.lr.x", "none") == "none"
    assert value_at(None, "rounds", "none") == "none"


def test_all_keys_with_those_above_them():
    assert list(dotted(CONFIG)) == ["strategy", "strategy.server", "strategy.server.lr", "rounds"]
