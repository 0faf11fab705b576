from __future__ import annotations

import re
from pathlib import Path

import pytest

from evalfleet.errors import HostsFileError
from evalfleet.hosts.ssh.login.hosts_file import DEFAULT_FOLDER, Login, SshHostSpec, load

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGRkRm5hWlvdO4mF8vUrtAdFX9eIRwDjoTM2mSpnwcq6"


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str) -> list[SshHostSpec]:
        path = tmp_path / "hosts.toml"
        path.write_text(text)
        return load(path)

    return write


def test_the_least(write):
    (host,) = write('[[host]]\naddress = "10.0.0.4"\n')
    assert host == SshHostSpec(name="10.0.0.4", login=Login(address="10.0.0.4"), ssh_config=True)
    assert (host.slots, host.folder, str(host.login)) == (1, DEFAULT_FOLDER, "10.0.0.4")


def test_everything(write, tmp_path: Path):
    (tmp_path / "id").touch()
    first, second = write(
        f"""
        [defaults]
        user = "eval"
        key = "id"
        slots = 2
        price_usd_per_hour = 0.5
        connect_timeout = "5s"
        ssh_config = false

        [[host]]
        name = "box1"
        address = "box1.example"
        port = 2222
        host_key = "{KEY} somebody@somewhere"
        jump = "me@[fe80::1]:2200"
        memory_mb = 16000
        python = "/opt/python3/bin/python3"
        folder = "/data/evalfleet"

        [[host]]
        name = "box2"
        address = "box2.example"
        slots = 1
        user = "other"
        jump = "bastion"
        ssh_config = true
        """
    )
    assert first == SshHostSpec(
        name="box1",
        login=Login(address="box1.example", port=2222, user="eval"),
        key=tmp_path / "id",
        host_key=KEY,
        jump=Login(address="fe80::1", port=2200, user="me"),
        slots=2,
        price_usd_per_hour=0.5,
        memory_mb=16000,
        python="/opt/python3/bin/python3",
        folder="/data/evalfleet",
        connect_s=5.0,
        ssh_config=False,
    )
    assert (second.slots, second.login.user, second.jump) == (1, "other", Login(address="bastion"))
    assert second.ssh_config


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there are no hosts; write at least [[host]]"),
        ("[host]\naddress = 'a'", "write [[host]] above each host"),
        ("[[hosts]]\naddress = 'a'", 'unknown key "hosts"; did you mean "host"?'),
        ("[[host]\n", "not valid TOML: "),
        ("[[host]]\nname = 'box'", 'host "box": "address" is missing'),
        ("[[host]]\naddress = 'a'\nslot = 2", 'host "a": unknown key "slot"; did you mean "slots"?'),
        ("[[host]]\naddress = 'me@a'", "put the user in `user`"),
        ("[[host]]\naddress = 'a'\nport = 'x'", "port: expected a whole number"),
        ("[[host]]\naddress = 'a'\nport = 70000", "use 1 to 65535"),
        ("[[host]]\naddress = 'a'\nslots = 0", "slots: 0 is out of range; use 1 to"),
        ("[[host]]\naddress = 'a'\nname = 'a b'", 'name: "a b" is not a valid name'),
        ("[[host]]\naddress = 'a'\nkey = 'none'", 'key: there is no file "none"'),
        ("[[host]]\naddress = 'a'\nhost_key = 'ssh-rsa QUJD'", "copy what `ssh-keyscan` prints"),
        (f"[[host]]\naddress = 'a'\nhost_key = 'ssh-rsa {KEY.split()[1]}'", "is not a public key"),
        ("[[host]]\naddress = 'a'\njump = 'a b'", 'write "user@address" or "user@address:port"'),
        ("[[host]]\naddress = 'a'\nprice_usd_per_hour = -1", "use 0 or more"),
        ("[[host]]\naddress = 'a'\nconnect_timeout = 'soon'", "connect_timeout: "),
        ("[[host]]\naddress = 'a'\npython = ''", "python: must not be empty"),
        ("[[host]]\naddress = 'a'\n[[host]]\naddress = 'a'", "name: is used twice"),
        ("[[host]]\naddress = 'a'\n[[host]]\nname = 'b'\naddress = 'a'", "with more `slots`"),
        ("[defaults]\naddress = 'a'", "address belongs to a single host; write it under [[host]]"),
        ("host = 1", "write [[host]] above each host"),
        ("[[host]]\naddress = 1", "number 1: address: expected text in quotes"),
    ],
)
def test_what_is_wrong_is_said(write, text: str, said: str):
    with pytest.raises(HostsFileError) as caught:
        write(text)
    assert said in str(caught.value)
    assert "hosts.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path):
    with pytest.raises(HostsFileError, match="there is no such file"):
        load(tmp_path / "none.toml")
    with pytest.raises(HostsFileError, match="cannot be read"):
        load(tmp_path)
    (tmp_path / "hosts.toml").write_bytes(b"\xff")
    with pytest.raises(HostsFileError, match="UTF-8"):
        load(tmp_path / "hosts.toml")


def test_the_reference_has_every_key(write):
    page = (Path(__file__).parents[3] / "docs" / "reference" / "hosts-file.md").read_text()
    described = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    with pytest.raises(HostsFileError) as caught:
        write("[[host]]\naddress = 'a'\nqqqq = 1")
    assert described == set(str(caught.value).rpartition("known here: ")[2].rstrip(".").split(", "))
