"""The server's settings: where its state is, where it listens, how long it waits."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Self

from pydantic import model_validator

from assay_core.files.free_space import DEFAULT_FLOOR_BYTES
from assay_core.metrics.reading import (
    MetricsCertificateSetting,
    MetricsKeySetting,
    MetricsPlace,
    MetricsReadersSetting,
    MetricsSetting,
    metrics_place,
)
from assay_core.program import LogFormatSetting, LogLevelSetting
from assay_core.program_log import LogFormat, LogLevel
from assay_core.server_address import ServerAddress, default_address, parse_address
from assay_core.settings.declaration import ProgramSettings, setting
from assay_sampling.errors import ParameterError
from assay_server.limits import limits_asked
from assay_server.places import (
    DEFAULT_CACHE_BYTES,
    AnalysisPlace,
    RecordsPlace,
    WebPlace,
    analysis_place,
    records_place,
    web_place,
)


class ServerSettings(ProgramSettings):
    """The settings of ``assay-server``; raises ParameterError for invalid values."""

    program: ClassVar[str] = "assay-server"
    variable_prefix: ClassVar[str] = "ASSAY_SERVER_"
    reloads: ClassVar[bool] = True

    state_dir: Path = setting(
        ..., "Folder of metadata, records and reports; created if missing.", flag="state", metavar="DIR"
    )
    database: str = setting(
        "",
        "postgresql://USER@HOST:PORT/NAME: keep metadata there instead of in the folder. Must not contain a "
        "password.",
        default_text="the one the folder uses, initially SQLite",
        metavar="URL",
    )
    database_file: Path | None = setting(
        None,
        "Private file (mode 0600) whose first line is such a URL; it may contain a password.",
        metavar="FILE",
    )
    records: str = setting(
        "",
        "s3://BUCKET/PREFIX, or a folder that servers share: keep records there, not in the state folder.",
        default_text="where they are, initially in the state folder",
        metavar="PLACE",
    )
    records_endpoint: str = setting(
        "", "Address of the S3 server with that bucket.", default_text="Amazon's", metavar="URL"
    )
    records_credentials: Path | None = setting(
        None,
        "Private file (mode 0600) with aws_access_key_id and aws_secret_access_key.",
        default_text="the environment, AWS_ACCESS_KEY_ID and its like",
        metavar="FILE",
    )
    records_cache: Path | None = setting(
        None,
        "Folder for copies of a bucket's files.",
        default_text="records-cache in the state",
        metavar="DIR",
    )
    records_cache_limit_bytes: int = setting(
        DEFAULT_CACHE_BYTES,
        "Size limit of that folder; the least recently used files are removed first.",
        ge=1,
    )
    listen: tuple[str, ...] = setting(
        lambda: (default_address(),),
        "unix:PATH, or HOST:PORT with mutual TLS (port 0: any free), which needs 'assay-server init'.",
        default_text="this user's own socket",
        metavar="ADDRESS",
    )
    socket_group: str = setting(
        "",
        "Group whose members may use the socket with all rights of its owner; its folder has mode 2770.",
        default_text="only this user",
        metavar="NAME",
    )
    join: tuple[str, ...] = setting(
        (),
        "HOST:PORT at which agents and people join with a token; they connect to --listen.",
        default_text="nobody can join",
        metavar="ADDRESS",
    )
    advertise_join: str = setting(
        "",
        "HOST:PORT under which joiners reach --join, if it differs; printed with tokens.",
        default_text="the port of --join",
        metavar="ADDRESS",
    )
    certificate_validity_seconds: float = setting(
        86_400.0,
        "How long certificates of agents and people are valid; they are renewed when a third is left.",
        ge=3,
        le=400 * 86_400,
    )
    renewal_grace_seconds: float = setting(
        7 * 86_400.0,
        "How long agents and people can renew an expired certificate at --join without a token.",
        ge=0,
        le=30 * 86_400,
    )
    lease_ms: int = setting(
        60_000, "If an agent is silent for this long, its attempt goes to another slot.", ge=1
    )
    heartbeat_ms: int = setting(5_000, "How often agents send a heartbeat; idle ones a third as often.", ge=1)
    analysis_workers: int = setting(1, "Processes that analyse campaigns, each one workload at a time.", ge=1)
    analysis: str = setting(
        "",
        "dask://HOST:PORT or dask+tls://HOST:PORT: workers of a Dask scheduler analyse campaigns.",
        default_text="processes of the server",
        metavar="URL",
    )
    analysis_ca: Path | None = setting(
        None, "Authority (PEM) that scheduler and server trust.", metavar="FILE"
    )
    analysis_certificate: Path | None = setting(
        None, "The server's certificate (PEM) for that scheduler.", metavar="FILE"
    )
    analysis_key: Path | None = setting(None, "Its private key (PEM).", metavar="FILE")
    retry_delay_ms: int = setting(
        1_000, "Delay before a failed slice is tried again, doubled each time.", at_runtime=True, ge=0
    )
    audit_days: int = setting(400, "How long the audit log is kept, in days.", ge=1)
    drain_seconds: float = setting(
        10.0, "How long running calls may continue after SIGTERM.", at_runtime=True, ge=0
    )
    metrics: MetricsSetting = ""
    metrics_certificate: MetricsCertificateSetting = None
    metrics_key: MetricsKeySetting = None
    metrics_readers: MetricsReadersSetting = None
    web: str = setting(
        "",
        "HOST:PORT of the live page for browsers; off loopback over TLS. People log in with a link.",
        default_text="off",
        metavar="ADDRESS",
    )
    web_names: tuple[str, ...] = setting(
        (),
        "Name under which browsers reach --web, the first in links; other Host headers are refused.",
        default_text="the host of --web",
        flag="web-name",
        metavar="HOST",
    )
    web_certificate: Path | None = setting(
        None,
        "Certificate (PEM) of the live page.",
        default_text="issued by the lab's authority",
        metavar="FILE",
    )
    web_key: Path | None = setting(None, "Private key (PEM) of that certificate.", metavar="FILE")
    records_limit_bytes: int | None = setting(
        None,
        "Maximum size of published records; beyond it no new work is accepted.",
        default_text="none",
        ge=1,
    )
    minimum_free_bytes: int = setting(
        DEFAULT_FLOOR_BYTES, "Free bytes on the disk of the state below which no new work is accepted.", ge=0
    )
    keep_logs_seconds: float = setting(
        90 * 86_400.0,
        "How long after the end of a campaign logs of attempts without a result are kept; 0: forever.",
        ge=0,
    )
    maintenance: tuple[str, ...] = setting(
        (),
        "Times without new runs: AGENT START/END or label:LABEL START/END, in ISO 8601.",
        default_text="none",
        metavar="WINDOW",
        at_runtime=True,
    )
    person_gpu_hours: float = setting(
        0.0,
        "GPU hours that each person may use in 30 days; 0: no limit.",
        at_runtime=True,
        ge=0,
        allow_inf_nan=False,
    )
    limits: tuple[str, ...] = setting(
        (),
        "Change a limit of 'assay docs limits', which says what SIGHUP reloads.",
        default_text="none",
        flag="limit",
        metavar="NAME=NUMBER",
        at_runtime=True,
    )
    log_level: LogLevelSetting = LogLevel.WARNING
    log_format: LogFormatSetting = LogFormat.TEXT

    @classmethod
    def default_file(cls) -> Path:
        """The settings file of a box's server."""
        return Path("/etc/assay/server.toml")

    @model_validator(mode="after")
    def _can_be(self) -> Self:
        if self.heartbeat_ms * 2 > self.lease_ms:
            raise ParameterError(
                "--heartbeat",
                f"with {self.heartbeat_ms} ms one lost heartbeat ends a lease of {self.lease_ms} ms",
                "make it at most half of --lease",
            )
        if not self.listen:
            raise ParameterError("--listen", "no address is given", "give HOST:PORT or unix:PATH")
        listen = [check_listen_address(address) for address in self.listen]
        limits_asked(self.limits)  # raises if they are not limits
        _ = self.records_place  # raises if they are not a place
        _ = self.metrics_place  # raises if it is not an address, or not safe
        _ = self.web_place  # the same of the live page
        if self.analysis_place is not None and not self.state_dir.is_absolute():
            raise ParameterError(
                "--analysis",
                "workers find records by their path, and that of --state is relative",
                "give --state an absolute path that leads to the same folder on every worker",
            )
        joined_at = self.advertise_join
        if joined_at and parse_address(joined_at, f"--advertise-join {joined_at!r}").socket:
            raise ParameterError(
                "--advertise-join", "agents and people who join connect over TCP", "give HOST:PORT"
            )
        listens_on_tcp = any(address.socket is None for address in listen)
        if self.socket_group and not any(address.socket for address in listen):
            raise ParameterError("--socket-group", "the server has no socket", "give --listen unix:PATH, too")
        for address in self.join:
            if check_listen_address(address, "join").socket is not None or not listens_on_tcp:
                raise ParameterError(
                    "--join",
                    "agents and people who join connect over TCP",
                    "give HOST:PORT, and another HOST:PORT to --listen",
                )
        return self

    @property
    def metrics_place(self) -> MetricsPlace | None:
        """Where metrics are served; None: nowhere."""
        return metrics_place(self.metrics, self.metrics_certificate, self.metrics_key, self.metrics_readers)

    @property
    def analysis_place(self) -> AnalysisPlace | None:
        """The workers that analyse campaigns; None: processes of the server."""
        return analysis_place(self.analysis, self.analysis_ca, self.analysis_certificate, self.analysis_key)

    @property
    def records_place(self) -> RecordsPlace:
        """Where records are asked to be."""
        return records_place(
            self.records,
            self.records_endpoint,
            self.records_credentials,
            self.records_cache,
            self.records_cache_limit_bytes,
        )

    @property
    def web_place(self) -> WebPlace | None:
        """Where the live page is served; None: nowhere."""
        return web_place(self.web, self.web_names, self.web_certificate, self.web_key)


def check_listen_address(address: str, purpose: str = "listen") -> ServerAddress:
    """The address; raises ParameterError if it is not an address."""
    return parse_address(address, f"{purpose} address {address!r}", any_port=True)
