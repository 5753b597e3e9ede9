"""The server's settings: where its state is, where it listens, how long it waits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

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
from assay_core.settings.declaration import ProgramSettings, Setting
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

    state_dir: Annotated[
        Path,
        Setting("Folder of metadata, records and reports; created if missing.", flag="state", metavar="DIR"),
    ]
    database: Annotated[
        str,
        Setting(
            "postgresql://USER@HOST:PORT/NAME: keep metadata there instead of in the folder. Must not "
            "contain a password.",
            default="the one the folder uses, initially SQLite",
            metavar="URL",
        ),
    ] = ""
    database_file: Annotated[
        Path | None,
        Setting(
            "Private file (mode 0600) whose first line is such a URL; it may contain a password.",
            metavar="FILE",
        ),
    ] = None
    records: Annotated[
        str,
        Setting(
            "s3://BUCKET/PREFIX, or a folder that servers share: keep records there, not in the state "
            "folder.",
            default="where they are, initially in the state folder",
            metavar="PLACE",
        ),
    ] = ""
    records_endpoint: Annotated[
        str,
        Setting("Address of the S3 server with that bucket.", default="Amazon's", metavar="URL"),
    ] = ""
    records_credentials: Annotated[
        Path | None,
        Setting(
            "Private file (mode 0600) with aws_access_key_id and aws_secret_access_key.",
            default="the environment, AWS_ACCESS_KEY_ID and its like",
            metavar="FILE",
        ),
    ] = None
    records_cache: Annotated[
        Path | None,
        Setting(
            "Folder for copies of a bucket's files.", default="records-cache in the state", metavar="DIR"
        ),
    ] = None
    records_cache_limit_bytes: Annotated[
        int,
        Setting("Size limit of that folder; the least recently used files are removed first."),
        Field(ge=1),
    ] = DEFAULT_CACHE_BYTES
    listen: Annotated[
        tuple[str, ...],
        Setting(
            "unix:PATH, or HOST:PORT with mutual TLS (port 0: any free), which needs 'assay-server init'.",
            default="this user's own socket",
            metavar="ADDRESS",
        ),
    ] = Field(default_factory=lambda: (default_address(),))
    socket_group: Annotated[
        str,
        Setting(
            "Group whose members may use the socket with all rights of its owner; its folder has mode 2770.",
            default="only this user",
            metavar="NAME",
        ),
    ] = ""
    join: Annotated[
        tuple[str, ...],
        Setting(
            "HOST:PORT at which agents and people join with a token; they connect to --listen.",
            default="nobody can join",
            metavar="ADDRESS",
        ),
    ] = ()
    advertise_join: Annotated[
        str,
        Setting(
            "HOST:PORT under which joiners reach --join, if it differs; printed with tokens.",
            default="the port of --join",
            metavar="ADDRESS",
        ),
    ] = ""
    certificate_validity_seconds: Annotated[
        float,
        Setting(
            "How long certificates of agents and people are valid; they are renewed when a third is left."
        ),
        Field(ge=3, le=400 * 86_400),
    ] = 86_400.0
    renewal_grace_seconds: Annotated[
        float,
        Setting("How long agents and people can renew an expired certificate at --join without a token."),
        Field(ge=0, le=30 * 86_400),
    ] = 7 * 86_400.0
    lease_ms: Annotated[
        int, Setting("If an agent is silent for this long, its attempt goes to another slot."), Field(ge=1)
    ] = 60_000
    heartbeat_ms: Annotated[
        int, Setting("How often agents send a heartbeat; idle ones a third as often."), Field(ge=1)
    ] = 5_000
    analysis_workers: Annotated[
        int, Setting("Processes that analyse campaigns, each one workload at a time."), Field(ge=1)
    ] = 1
    analysis: Annotated[
        str,
        Setting(
            "dask://HOST:PORT or dask+tls://HOST:PORT: workers of a Dask scheduler analyse campaigns.",
            default="processes of the server",
            metavar="URL",
        ),
    ] = ""
    analysis_ca: Annotated[
        Path | None,
        Setting("Authority (PEM) that scheduler and server trust.", metavar="FILE"),
    ] = None
    analysis_certificate: Annotated[
        Path | None, Setting("The server's certificate (PEM) for that scheduler.", metavar="FILE")
    ] = None
    analysis_key: Annotated[Path | None, Setting("Its private key (PEM).", metavar="FILE")] = None
    retry_delay_ms: Annotated[
        int,
        Setting("Delay before a failed slice is tried again, doubled each time.", at_runtime=True),
        Field(ge=0),
    ] = 1_000
    audit_days: Annotated[int, Setting("How long the audit log is kept, in days."), Field(ge=1)] = 400
    drain_seconds: Annotated[
        float,
        Setting("How long running calls may continue after SIGTERM.", at_runtime=True),
        Field(ge=0),
    ] = 10.0
    metrics: MetricsSetting = ""
    metrics_certificate: MetricsCertificateSetting = None
    metrics_key: MetricsKeySetting = None
    metrics_readers: MetricsReadersSetting = None
    web: Annotated[
        str,
        Setting(
            "HOST:PORT of the live page for browsers; off loopback over TLS. People log in with a link.",
            default="off",
            metavar="ADDRESS",
        ),
    ] = ""
    web_names: Annotated[
        tuple[str, ...],
        Setting(
            "Name under which browsers reach --web, the first in links; other Host headers are refused.",
            default="the host of --web",
            flag="web-name",
            metavar="HOST",
        ),
    ] = ()
    web_certificate: Annotated[
        Path | None,
        Setting(
            "Certificate (PEM) of the live page.", default="issued by the lab's authority", metavar="FILE"
        ),
    ] = None
    web_key: Annotated[Path | None, Setting("Private key (PEM) of that certificate.", metavar="FILE")] = None
    records_limit_bytes: Annotated[
        int | None,
        Setting("Maximum size of published records; beyond it no new work is accepted.", default="none"),
        Field(ge=1),
    ] = None
    minimum_free_bytes: Annotated[
        int, Setting("Free bytes on the disk of the state below which no new work is accepted."), Field(ge=0)
    ] = DEFAULT_FLOOR_BYTES
    keep_logs_seconds: Annotated[
        float,
        Setting(
            "How long after the end of a campaign logs of attempts without a result are kept; 0: forever."
        ),
        Field(ge=0),
    ] = 90 * 86_400.0
    maintenance: Annotated[
        tuple[str, ...],
        Setting(
            "Times without new runs: AGENT START/END or label:LABEL START/END, in ISO 8601.",
            default="none",
            metavar="WINDOW",
            at_runtime=True,
        ),
    ] = ()
    person_gpu_hours: Annotated[
        float,
        Setting("GPU hours that each person may use in 30 days; 0: no limit.", at_runtime=True),
        Field(ge=0, allow_inf_nan=False),
    ] = 0.0
    limits: Annotated[
        tuple[str, ...],
        Setting(
            "Change a limit of 'assay docs limits', which says what SIGHUP reloads.",
            default="none",
            flag="limit",
            metavar="NAME=NUMBER",
            at_runtime=True,
        ),
    ] = ()
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
        for address in self.listen:
            check_listen_address(address)
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
        if (
            self.advertise_join
            and parse_address(self.advertise_join, f"--advertise-join {self.advertise_join!r}").socket
        ):
            raise ParameterError(
                "--advertise-join", "agents and people who join connect over TCP", "give HOST:PORT"
            )
        listens_on_tcp = any(check_listen_address(each).socket is None for each in self.listen)
        if self.socket_group and not any(check_listen_address(each).socket for each in self.listen):
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
