"""What a `--state-store` may say: no secret, and TLS that is verified unless the server is on this machine."""

import pytest

from touchfs.core.errors import UsageError
from touchfs.postgres.place import check_state_name, parse_address

LOCAL = (
    "postgresql://localhost/db",
    "postgresql://127.0.0.1:5433/db",
    "postgresql://user@[::1]/db",
    "postgresql:///db",
    "postgresql:///db?host=/run/postgresql",
)
REMOTE = (
    "postgresql://db.example/db",
    "postgresql://localhost,db.example/db",
    "postgresql://localhost/db?hostaddr=192.0.2.7",
    "postgresql://localhost/db?service=fleet",
    "postgresql://127.0.0.1.example/db",
)


@pytest.mark.parametrize("url", LOCAL)
def test_on_this_machine_tls_is_optional(url):
    assert "sslmode" not in parse_address(url, {}).parameters


@pytest.mark.parametrize("url", REMOTE)
def test_over_a_network_it_is_verified(url):
    assert parse_address(url, {}).parameters["sslmode"] == "verify-full"
    separator = "&" if "?" in url else "?"
    for weaker in ("disable", "prefer", "require", "verify-ca"):
        with pytest.raises(UsageError, match="sslmode"):
            parse_address(f"{url}{separator}sslmode={weaker}", {})


@pytest.mark.parametrize("variable", ["PGHOST", "PGHOSTADDR", "PGSERVICE"])
def test_the_environment_cannot_lead_elsewhere_without_it(variable):
    assert parse_address("postgresql:///db", {variable: "192.0.2.7", "PGSSLMODE": "disable"}).parameters["sslmode"]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:hunter2@localhost/db",
        "postgresql://user@localhost/db?password=hunter2",
        "postgresql://user@localhost/db?sslpassword=hunter2",
        "postgresql://user@localhost/db?options=hunter2",
        "postgresql://user@localhost/db?hunter2=1&bad=%zz",
        "postgresql://[hunter2/db",
        "mysql://user:hunter2@localhost/db",
        "user=x password=hunter2",
    ],
)
def test_secrets_and_what_may_hold_them_are_refused_and_not_repeated(url):
    with pytest.raises(UsageError) as refused:
        parse_address(url, {})
    assert "hunter2" not in str(refused.value).replace("'hunter2'", "")


def test_what_is_shown_is_where_it_is():
    address = parse_address("postgresql://me@db.example:5433/train?sslrootcert=/etc/ca.pem", {})
    assert address.shown == "postgresql://db.example:5433/train"


@pytest.mark.parametrize("source", ["/data/speech", "/data/speech/", "s3://bucket/speech", "speech"])
def test_the_name_is_that_of_the_source(source):
    assert check_state_name("", source) == "speech"
    assert check_state_name("", source, "train") == "speech.train"


@pytest.mark.parametrize("name", ['a"b', "a b", "a;b", "ü", "x" * 49])
def test_names_that_are_refused(name):
    with pytest.raises(UsageError, match="--state-name"):
        check_state_name(name, "/data/speech")
