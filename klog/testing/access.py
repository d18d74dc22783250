"""TLS and SASL of a TestBroker: its properties, its users, and the configuration of a client.

    tls      a certificate for localhost, of an authority that is made for the test (klog.testing.certificates)
    sasl     users with passwords, by SCRAM or PLAIN

The files of TLS are in a directory of their own: in a log.dir they would not belong to Kafka's files, and would be part
of snapshots.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from klog import arguments
from klog.testing.place import new_directory, remove_directory

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from klog.network import Listener

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
CLIENTS = ("confluent-kafka", "kafka-python", "aiokafka", "java")
_PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"


class Access:
    """How clients authenticate. sasl: passwords by user; empty: no SASL. Any thread. Raises ValueError, TypeError,
    RuntimeError."""

    def __init__(self, *, tls: bool = False, sasl: Mapping[str, str] | None = None, mechanism: str = MECHANISMS[1]):
        arguments.chosen("mechanism", mechanism, MECHANISMS)
        if sasl is not None and not hasattr(sasl, "items"):
            raise arguments.wrong_type("sasl", sasl, "a mapping of users to passwords")
        self.users = {
            arguments.text("sasl: a user", user): arguments.text("sasl: a password", password)
            for user, password in (sasl or {}).items()
        }
        if sasl is not None and not self.users:
            raise ValueError("sasl={}: at least one user expected")
        self.mechanism = mechanism
        self._directory: str | None = None
        if arguments.flag("tls", tls):
            from klog.testing.certificates import write_certificates

            self._directory = new_directory()
            try:
                write_certificates(self._directory)
            except BaseException:
                self.close()
                raise

    @property
    def protocol(self) -> str:
        """The listeners' security protocol, which is their name, too."""
        encrypted = "SSL" if self._directory is not None else "PLAINTEXT"
        return f"SASL_{encrypted}" if self.users else encrypted

    @property
    def ca(self) -> str | None:
        """The PEM file of the authority that has signed the broker's certificate; None without TLS."""
        return None if self._directory is None else os.path.join(self._directory, "ca.pem")

    def listeners(self, given: Iterable[str | Listener]) -> list[str | Listener]:
        """Listeners with this protocol. Raises ValueError for one with a name, which could have another."""
        listeners = list(given)
        if self.protocol == "PLAINTEXT":
            return listeners
        for each in listeners:
            if not isinstance(each, str) or "://" in each:
                raise ValueError(f"listeners: {each}: with tls or sasl a listener is host:port, without a name")
        return [f"{self.protocol}://{each}" for each in listeners]

    def properties(self) -> dict[str, Any]:
        """The broker's properties."""
        protocol = self.protocol
        if protocol == "PLAINTEXT":
            return {}
        found: dict[str, Any] = {"listener.security.protocol.map": f"{protocol}:{protocol}"}
        if self._directory is not None:
            found["ssl.keystore.location"] = os.path.join(self._directory, "server.pem")
        if self.users:
            found["sasl.enabled.mechanisms"] = self.mechanism
        if self.users and self.mechanism == "PLAIN":
            found["klog.sasl.plaintext.allow"] = True
            found[f"listener.name.{protocol.lower()}.plain.sasl.jaas.config"] = _jaas(
                _PLAIN_LOGIN, {f"user_{user}": password for user, password in self.users.items()}
            )
        return found

    def add_users(self, directory: str) -> None:
        """Add the SCRAM users that the directory of a broker does not have. Before its start."""
        if not self.users or self.mechanism == "PLAIN":
            return
        from klog.security import Users

        known = Users(directory)
        for user, password in self.users.items():
            if self.mechanism not in known.of(user):
                known.set_password(user, self.mechanism, password)

    def client_config(self, client: str, bootstrap_servers: str, user: str | None = None) -> dict[str, Any]:
        """What a client needs, by the names of its library."""
        arguments.chosen("client", client, CLIENTS)
        if user is not None and user not in self.users:
            raise ValueError(f"user={user!r}: one of {', '.join(self.users) or 'no users: the broker has no SASL'}")
        user = next(iter(self.users), None) if user is None else user
        login = None if user is None else (user, self.users[user])
        if client in ("confluent-kafka", "java"):
            found: dict[str, Any] = {"bootstrap.servers": bootstrap_servers, "security.protocol": self.protocol}
            return found | (self._librdkafka(login) if client == "confluent-kafka" else self._java(login))
        found = {"bootstrap_servers": bootstrap_servers, "security_protocol": self.protocol}
        if self.ca is not None and client == "kafka-python":
            found["ssl_cafile"] = self.ca
        elif self.ca is not None:
            import ssl

            found["ssl_context"] = ssl.create_default_context(cafile=self.ca)
        if login is not None:
            found |= {"sasl_mechanism": self.mechanism}
            found |= {"sasl_plain_username": login[0], "sasl_plain_password": login[1]}
        return found

    def _librdkafka(self, login: tuple[str, str] | None) -> dict[str, Any]:
        found = {} if self.ca is None else {"ssl.ca.location": self.ca}
        if login is not None:
            found |= {"sasl.mechanism": self.mechanism, "sasl.username": login[0], "sasl.password": login[1]}
        return found

    def _java(self, login: tuple[str, str] | None) -> dict[str, Any]:
        found = {} if self.ca is None else {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.ca}
        if login is not None:
            module = _PLAIN_LOGIN if self.mechanism == "PLAIN" else _SCRAM_LOGIN
            options = {"username": login[0], "password": login[1]}
            found |= {"sasl.mechanism": self.mechanism, "sasl.jaas.config": _jaas(module, options)}
        return found

    def close(self) -> None:
        """Remove the files of TLS."""
        if self._directory is not None:
            remove_directory(self._directory)


def _jaas(module: str, options: Mapping[str, str]) -> str:
    """A JAAS entry, with Java's escapes."""
    shown = [f"{_quoted(name)}={_quoted(value)}" for name, value in options.items()]
    return f"{module} required {' '.join(shown)};"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
