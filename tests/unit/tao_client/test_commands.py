import pytest

from tao_client._commands import command_head


@pytest.mark.parametrize(
    ("command", "head"),
    [
        ("ls -la /secret", "ls"),
        ("python -m pytest -q tests/test_secret.py", "python -m pytest"),
        ("python3.11 -m pip install secret", "python3.11 -m pip"),
        ("python secret.py", "python"),
        ("python -c 'print(secret)'", "python"),
        ("python -m", "python"),
        ("/usr/bin/python3 -m mypy .", "python3 -m mypy"),
        ("git -C status", "git status"),
        ("git --no-pager diff HEAD", "git diff"),
        ("git", "git"),
        ("git 'secret'", "git"),
        ("npm run secret", "npm run"),
        ("cargo test", "cargo test"),
        ("make -j4", "make"),
        ("./run_secret.sh", "run_secret.sh"),
        ("cd /repo && pytest -k secret", "pytest"),
        ("cd /a; cd /b && FOO=1 BAR='x' make test", "make test"),
        ("export TOKEN=secret && go build ./...", "go build"),
        ("source venv/bin/activate\npip install .", "pip install"),
        ("sudo -u root ls", None),
        ("sudo apt-get install x", "apt-get"),
        ("timeout 60 cargo build", "cargo build"),
        ("time make", "make"),
        ("cat secret.txt | grep key", "cat"),
        ("cat <<'EOF' > secret\nhello\nEOF", "cat"),
        ("echo $(secret)", "echo"),
        ("(cd x)", None),
        ("'quoted name' x", None),
        ("$SECRET x", None),
        ("", None),
        ("   ", None),
        ("x" * 5000, None),
    ],
)
def test_command_head_never_shows_an_argument(command: str, head: str | None) -> None:
    assert command_head(command) == head
    if head is not None and "run_secret" not in command:
        assert "secret" not in head
