import subprocess

from fedrun.system import source_commit
from fedrun.system.source_commit import commit, loaded_commit


def git(folder, *arguments):
    identity = ("-c", "user.name=n", "-c", "user.email=e@e")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def test_a_process_runs_the_commit_that_it_has_loaded(monkeypatch):
    loaded_commit.cache_clear()
    monkeypatch.setattr(source_commit, "commit", iter(["one", "two"]).__next__)
    assert [loaded_commit(), loaded_commit()] == ["one", "one"]
    loaded_commit.cache_clear()


def test_the_commit_of_a_checkout(tmp_path):
    assert commit(tmp_path) is None
    (tmp_path / "fedrun").mkdir()
    (tmp_path / "fedrun" / "a.py").write_text("1\n")
    git(tmp_path, "init")
    assert commit(tmp_path) is None  # nothing committed yet
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "one")
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert commit(tmp_path) == head[:12]
    (tmp_path / "notes").write_text("elsewhere\n")
    assert commit(tmp_path) == head[:12]
    (tmp_path / "fedrun" / "a.py").write_text("2\n")
    assert commit(tmp_path) == f"{head[:12]}+changes"
